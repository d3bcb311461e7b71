package upcall

import (
	"encoding/binary"
	"hash"
	"unsafe"
)

//go:wasmimport upcall find_byte
func findByte(at unsafe.Pointer, len uint32, b uint32) uint32

//go:wasmimport upcall count_byte
func countByte(at unsafe.Pointer, len uint32, b uint32) uint32

//go:wasmimport upcall find
func find(at unsafe.Pointer, len uint32, text unsafe.Pointer, textLen uint32) uint32

//go:wasmimport upcall sha256_blocks
func sha256Blocks(state unsafe.Pointer, at unsafe.Pointer, blocks uint32)

// nowhere stands for a place that is not there.
const nowhere = 1<<32 - 1

func start(bytes []byte) unsafe.Pointer {
	return unsafe.Pointer(unsafe.SliceData(bytes))
}

func place(found uint32) int {
	if found == nowhere {
		return -1
	}
	return int(found)
}

// IndexByte is the first place of a byte, or -1.
func IndexByte(bytes []byte, b byte) int {
	return place(findByte(start(bytes), uint32(len(bytes)), uint32(b)))
}

// CountByte is how often a byte is there.
func CountByte(bytes []byte, b byte) int {
	return int(countByte(start(bytes), uint32(len(bytes)), uint32(b)))
}

// Index is the first place of a text of at most 64 KiB, or -1.
func Index(bytes, text []byte) int {
	return place(find(start(bytes), uint32(len(bytes)), start(text), uint32(len(text))))
}

const blockSize = 64

// digest is a SHA-256 in progress (FIPS 180-4, 6.2.2).
type digest struct {
	state [8]uint32
	block [blockSize]byte
	len   uint64
}

// NewSHA256 is a SHA-256 that the server computes.
func NewSHA256() hash.Hash {
	d := new(digest)
	d.Reset()
	return d
}

func (d *digest) Reset() {
	*d = digest{state: [8]uint32{
		0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
		0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
	}}
}

func (d *digest) Size() int { return 32 }

func (d *digest) BlockSize() int { return blockSize }

func (d *digest) take(blocks []byte) {
	sha256Blocks(unsafe.Pointer(&d.state), start(blocks), uint32(len(blocks)/blockSize))
}

func (d *digest) Write(bytes []byte) (int, error) {
	written := len(bytes)
	if filled := int(d.len % blockSize); filled > 0 {
		n := copy(d.block[filled:], bytes)
		bytes = bytes[n:]
		if filled+n == blockSize {
			d.take(d.block[:])
		}
	}
	if whole := len(bytes) / blockSize * blockSize; whole > 0 {
		d.take(bytes[:whole])
		bytes = bytes[whole:]
	}
	d.len += uint64(written)
	copy(d.block[:], bytes)
	return written, nil
}

func (d *digest) Sum(before []byte) []byte {
	last := *d
	padding := make([]byte, blockSize+8)
	padding[0] = 0x80
	zeros := (blockSize - 9 - int(last.len%blockSize) + blockSize) % blockSize
	binary.BigEndian.PutUint64(padding[1+zeros:], last.len*8)
	last.Write(padding[:1+zeros+8])
	for _, word := range last.state {
		before = binary.BigEndian.AppendUint32(before, word)
	}
	return before
}
