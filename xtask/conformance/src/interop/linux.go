// What the table asks for, by the 9P2000.L library that gVisor's became.
// usage: client ADDRESS ANAME BASE DIR WRITTEN NESTED ID; prints "@ok STEP" or "@no STEP WHY".
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"

	"github.com/hugelgupf/p9/p9"
)

var root p9.File

func step(name string, body func() error) bool {
	if err := body(); err != nil {
		fmt.Printf("@no %s %s\n", name, strings.ReplaceAll(err.Error(), "\n", "; "))
		return false
	}
	fmt.Printf("@ok %s\n", name)
	return true
}

func walk(path string) (p9.File, error) {
	names := strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
	qids, file, err := root.Walk(names)
	// The library takes a walk that ends on the way for one that arrives.
	if err == nil && len(qids) < len(names) {
		return nil, fmt.Errorf("%s: there is no %s", path, names[len(qids)])
	}
	return file, err
}

func open(path string, flags p9.OpenFlags) (p9.File, error) {
	file, err := walk(path)
	if err != nil {
		return nil, fmt.Errorf("walk: %w", err)
	}
	if _, _, err = file.Open(flags); err != nil {
		file.Close()
		return nil, fmt.Errorf("open: %w", err)
	}
	return file, nil
}

func list(path string) (int, error) {
	dir, err := open(path, p9.ReadOnly)
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	names, offset := map[string]bool{}, uint64(0)
	for {
		entries, err := dir.Readdir(offset, 8192)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		if len(entries) == 0 {
			return len(names), nil
		}
		for _, entry := range entries {
			if strings.HasPrefix(entry.Name, "entry-") {
				names[entry.Name] = true
			}
			offset = entry.Offset
		}
	}
}

func same(path, host string) error {
	wanted, err := os.ReadFile(host)
	if err != nil {
		return err
	}
	file, err := open(path, p9.ReadOnly)
	if err != nil {
		return err
	}
	defer file.Close()
	got, err := io.ReadAll(io.NewSectionReader(file, 0, 1<<40))
	if err != nil {
		return err
	}
	if !bytes.Equal(got, wanted) {
		return fmt.Errorf("%d bytes of %d, or others", len(got), len(wanted))
	}
	return nil
}

func main() {
	address, aname, base, dir := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	written, nested, id := os.Args[5], os.Args[6], os.Args[7]
	made, moved := "made-"+id, "moved-"+id
	attached := step("attach", func() error {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return err
		}
		client, err := p9.NewClient(conn)
		if err != nil {
			return fmt.Errorf("version: %w", err)
		}
		root, err = client.Attach(aname)
		return err
	})
	if !attached {
		return
	}
	step("list", func() error {
		count, err := list(base + "/list")
		if err == nil && count != 200 {
			err = fmt.Errorf("%d names", count)
		}
		return err
	})
	step("read", func() error { return same(base+"/big", dir+"/big") })
	step("nested", func() error { return same(base+"/"+nested, dir+"/"+nested) })
	var file p9.File
	created := step("create", func() error {
		parent, err := walk(base)
		if err != nil {
			return err
		}
		uid, gid := p9.UID(os.Getuid()), p9.GID(os.Getgid())
		file, _, _, err = parent.Create(made, p9.WriteOnly, 0644, uid, gid)
		return err
	})
	if created {
		write(file, base, made, moved, written)
	}
}

func write(file p9.File, base, made, moved, written string) {
	step("write", func() error {
		data, err := os.ReadFile(written)
		for at := 0; err == nil && at < len(data); {
			count := 0
			count, err = file.WriteAt(data[at:], int64(at))
			if err == nil && count == 0 {
				err = fmt.Errorf("nothing is taken at %d", at)
			}
			at += count
		}
		if err == nil {
			err = file.Close()
		}
		return err
	})
	step("back", func() error { return same(base+"/"+made, written) })
	parent, err := walk(base)
	if err != nil {
		step("rename", func() error { return err })
		return
	}
	renamed := step("rename", func() error {
		if err := parent.RenameAt(made, parent, moved); err != nil {
			return err
		}
		_, err := walk(base + "/" + moved)
		return err
	})
	if !renamed {
		moved = made
	}
	step("remove", func() error {
		if err := parent.UnlinkAt(moved, 0); err != nil {
			return err
		}
		if _, err := walk(base + "/" + moved); err == nil {
			return fmt.Errorf("it is still there")
		}
		return nil
	})
}
