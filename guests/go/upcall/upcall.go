//go:build !wasip1

// Package upcall has what an Upcall server does for storelets faster than they can: finding bytes,
// and hashing. The server looks at memory where it is, with its widest vectors. Elsewhere the
// standard library does the same.
package upcall

import (
	"bytes"
	"crypto/sha256"
	"hash"
)

// IndexByte is the first place of a byte, or -1.
func IndexByte(text []byte, b byte) int { return bytes.IndexByte(text, b) }

// CountByte is how often a byte is there.
func CountByte(text []byte, b byte) int { return bytes.Count(text, []byte{b}) }

// Index is the first place of a text of at most 64 KiB, or -1.
func Index(text, part []byte) int { return bytes.Index(text, part) }

// NewSHA256 is a SHA-256 that the server computes.
func NewSHA256() hash.Hash { return sha256.New() }
