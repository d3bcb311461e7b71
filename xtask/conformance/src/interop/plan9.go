// What the table asks for, by the 9P2000 library of Plan 9 from User Space.
// usage: client ADDRESS ANAME BASE DIR WRITTEN NESTED ID; prints "@ok STEP" or "@no STEP WHY".
package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"

	"9fans.net/go/plan9"
	"9fans.net/go/plan9/client"
)

var fs *client.Fsys

func step(name string, body func() error) bool {
	if err := body(); err != nil {
		fmt.Printf("@no %s %s\n", name, strings.ReplaceAll(err.Error(), "\n", "; "))
		return false
	}
	fmt.Printf("@ok %s\n", name)
	return true
}

func list(name string) ([]string, error) {
	fid, err := fs.Open(name, plan9.OREAD)
	if err != nil {
		return nil, err
	}
	defer fid.Close()
	dirs, err := fid.Dirreadall()
	if err != nil && err != io.EOF {
		return nil, err
	}
	var names []string
	for _, dir := range dirs {
		names = append(names, dir.Name)
	}
	return names, nil
}

func same(name, path string) error {
	wanted, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	fid, err := fs.Open(name, plan9.OREAD)
	if err != nil {
		return err
	}
	defer fid.Close()
	got, err := io.ReadAll(fid)
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
	made, moved := base+"/made-"+id, base+"/moved-"+id
	attached := step("attach", func() error {
		conn, err := client.Dial("tcp", address)
		if err == nil {
			fs, err = conn.Attach(nil, "root", aname)
		}
		return err
	})
	if !attached {
		return
	}
	step("list", func() error {
		names, err := list(base + "/list")
		if err == nil && len(names) != 200 {
			err = fmt.Errorf("%d names", len(names))
		}
		return err
	})
	step("read", func() error { return same(base+"/big", dir+"/big") })
	step("nested", func() error { return same(base+"/"+nested, dir+"/"+nested) })
	var fid *client.Fid
	created := step("create", func() (err error) {
		fid, err = fs.Create(made, plan9.OWRITE, 0644)
		return err
	})
	if created {
		write(fid, made, moved, written)
	}
}

func write(fid *client.Fid, made, moved, written string) {
	step("write", func() error {
		data, err := os.ReadFile(written)
		if err == nil {
			_, err = fid.Write(data)
		}
		if err == nil {
			err = fid.Close()
		}
		return err
	})
	step("back", func() error { return same(made, written) })
	renamed := step("rename", func() error {
		change := new(plan9.Dir)
		change.Null()
		change.Name = moved[strings.LastIndex(moved, "/")+1:]
		if err := fs.Wstat(made, change); err != nil {
			return err
		}
		_, err := fs.Stat(moved)
		return err
	})
	if !renamed {
		moved = made
	}
	step("remove", func() error {
		if err := fs.Remove(moved); err != nil {
			return err
		}
		if _, err := fs.Stat(moved); err == nil {
			return fmt.Errorf("it is still there")
		}
		return nil
	})
}
