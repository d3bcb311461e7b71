// Command sums prints the SHA-256 of every file beneath some directories.
package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"sums/upcall"
)

func sum(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	hash := upcall.NewSHA256()
	if _, err := io.Copy(hash, file); err != nil {
		return err
	}
	fmt.Printf("%x  %s\n", hash.Sum(nil), path)
	return nil
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: sums DIR...")
		os.Exit(2)
	}
	code := 0
	for _, root := range os.Args[1:] {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.Type().IsRegular() {
				err = sum(path)
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, "sums:", err)
				code = 1
			}
			return nil
		})
		if err != nil {
			code = 1
		}
	}
	os.Exit(code)
}
