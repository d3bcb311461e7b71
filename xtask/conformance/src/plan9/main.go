// A client of plain 9P2000 on the library of Plan 9 from User Space, which nobody here wrote.
// usage: client ADDRESS; prints "@ok NAME SECONDS NOTE" or "@no NAME SECONDS WHY" for each case.
package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"
	"time"

	"9fans.net/go/plan9"
	"9fans.net/go/plan9/client"
)

var fs *client.Fsys

func check(ok bool, format string, args ...interface{}) {
	if !ok {
		panic(fmt.Errorf(format, args...))
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func refused(err error, what string) {
	check(err != nil, "%s should have been refused", what)
}

func run(name string, body func() string) {
	start := time.Now()
	defer func() {
		took := time.Since(start).Seconds()
		if err := recover(); err != nil {
			fmt.Printf("@no %s %.1f %v\n", name, took, err)
		}
	}()
	note := body()
	fmt.Printf("@ok %s %.1f %s\n", name, time.Since(start).Seconds(), note)
}

func write(name string, data []byte) {
	fid, err := fs.Create(name, plan9.OWRITE, 0644)
	must(err)
	n, err := fid.Write(data)
	must(err)
	check(n == len(data), "%d of %d bytes written", n, len(data))
	must(fid.Close())
}

func read(name string) []byte {
	fid, err := fs.Open(name, plan9.OREAD)
	must(err)
	defer fid.Close()
	data, err := io.ReadAll(fid)
	must(err)
	return data
}

func list(name string) []*plan9.Dir {
	fid, err := fs.Open(name, plan9.OREAD)
	must(err)
	defer fid.Close()
	dirs, err := fid.Dirreadall()
	if err != io.EOF {
		must(err)
	}
	return dirs
}

func names(dirs []*plan9.Dir) string {
	var names []string
	for _, d := range dirs {
		names = append(names, d.Name)
	}
	sort.Strings(names)
	return strings.Join(names, " ")
}

func makeDir(name string) {
	fid, err := fs.Create(name, plan9.OREAD, plan9.DMDIR|0755)
	must(err)
	must(fid.Close())
}

func nothing() *plan9.Dir {
	d := new(plan9.Dir)
	d.Null()
	return d
}

func main() {
	conn, err := client.Dial("tcp", os.Args[1])
	if err == nil {
		fs, err = conn.Attach(nil, "root", "")
	}
	if err != nil {
		fmt.Printf("@no attach 0 %v\n", err)
		os.Exit(1)
	}
	files()
	directories()
	attributes()
}

func files() {
	run("write_and_read", func() string {
		data := bytes.Repeat([]byte("0123456789abcdef"), 100000)
		write("/big", data)
		check(bytes.Equal(read("/big"), data), "the file came back different")
		return fmt.Sprintf("%d bytes", len(data))
	})
	run("read_at_an_offset", func() string {
		fid, err := fs.Open("/big", plan9.OREAD)
		must(err)
		defer fid.Close()
		part := make([]byte, 16)
		_, err = fid.ReadAt(part, 16*1000+4)
		must(err)
		check(string(part) == "456789abcdef0123", "read %q", part)
		n, _ := fid.ReadAt(part, 1<<40)
		check(n == 0, "%d bytes behind the end", n)
		return ""
	})
	run("write_at_an_offset", func() string {
		write("/patch", []byte("aaaaaaaa"))
		fid, err := fs.Open("/patch", plan9.ORDWR)
		must(err)
		_, err = fid.WriteAt([]byte("bb"), 3)
		must(err)
		must(fid.Close())
		check(string(read("/patch")) == "aaabbaaa", "got %q", read("/patch"))
		return ""
	})
	run("open_truncates", func() string {
		fid, err := fs.Open("/patch", plan9.OWRITE|plan9.OTRUNC)
		must(err)
		must(fid.Close())
		check(len(read("/patch")) == 0, "not empty")
		return ""
	})
	run("remove", func() string {
		must(fs.Remove("/patch"))
		_, err := fs.Stat("/patch")
		refused(err, "stat of a removed file")
		refused(fs.Remove("/patch"), "a second remove")
		return err.Error()
	})
	run("remove_on_close", func() string {
		fid, err := fs.Create("/brief", plan9.ORDWR|plan9.ORCLOSE, 0600)
		must(err)
		must(fid.Close())
		_, err = fs.Stat("/brief")
		refused(err, "stat after close")
		return ""
	})
	run("errors_are_said", func() string {
		_, err := fs.Open("/nowhere", plan9.OREAD)
		refused(err, "open of nothing")
		_, err = fs.Open("/big/below", plan9.OREAD)
		refused(err, "a walk through a file")
		_, err = fs.Open("/from-host", plan9.OEXEC)
		refused(err, "executing what is not executable")
		return ""
	})
}

func directories() {
	run("make_and_list", func() string {
		makeDir("/dir")
		for n := 0; n < 500; n++ {
			write(fmt.Sprintf("/dir/file-%03d", n), []byte{byte(n)})
		}
		dirs := list("/dir")
		check(len(dirs) == 500, "%d entries", len(dirs))
		check(strings.HasPrefix(names(dirs), "file-000 file-001"), "%.40s", names(dirs))
		for _, d := range dirs {
			check(d.Length == 1, "%s has length %d", d.Name, d.Length)
		}
		refused(fs.Remove("/dir"), "remove of a full directory")
		return "500 entries"
	})
	run("walk_deep", func() string {
		path := ""
		for n := 0; n < 40; n++ {
			path += fmt.Sprintf("/d%d", n)
			makeDir(path)
		}
		write(path+"/deep", []byte("deep"))
		check(string(read(path+"/deep")) == "deep", "lost")
		_, err := fs.Stat(path + "/not/there")
		refused(err, "a walk that ends early")
		return "41 names in one walk of the caller"
	})
	run("dot_dot_ends_at_the_root", func() string {
		d, err := fs.Stat("/d0/../../../../..")
		must(err)
		root, err := fs.Stat("/")
		must(err)
		check(d.Qid == root.Qid, "left the tree: %v", d)
		return ""
	})
	run("from_the_host", func() string {
		check(string(read("/from-host")) == "hello\n", "got %q", read("/from-host"))
		return ""
	})
}

func attributes() {
	run("stat", func() string {
		d, err := fs.Stat("/big")
		must(err)
		check(d.Name == "big" && d.Length == 1600000 && d.Mode&0777 == 0644, "%v", d)
		check(d.Qid.Type == 0 && d.Mtime > 1500000000, "%v", d)
		dir, err := fs.Stat("/dir")
		must(err)
		check(dir.Mode&plan9.DMDIR != 0 && dir.Qid.Type&plan9.QTDIR != 0, "%v", dir)
		check(dir.Length == 0, "a directory has length %d", dir.Length)
		return d.Uid + " " + d.Gid
	})
	run("wstat_mode_and_length", func() string {
		change := nothing()
		change.Mode = 0600
		must(fs.Wstat("/big", change))
		change = nothing()
		change.Length = 10
		must(fs.Wstat("/big", change))
		d, err := fs.Stat("/big")
		must(err)
		check(d.Mode == 0600 && d.Length == 10, "%v", d)
		return ""
	})
	run("wstat_time", func() string {
		change := nothing()
		change.Mtime = 1000000000
		must(fs.Wstat("/big", change))
		d, err := fs.Stat("/big")
		must(err)
		check(d.Mtime == 1000000000, "%v", d)
		return ""
	})
	run("wstat_renames", func() string {
		change := nothing()
		change.Name = "small"
		must(fs.Wstat("/big", change))
		_, err := fs.Stat("/big")
		refused(err, "stat of the old name")
		change.Name = "dir"
		refused(fs.Wstat("/small", change), "a rename onto another file")
		d, err := fs.Stat("/small")
		must(err)
		check(d.Length == 10, "%v", d)
		return ""
	})
	run("qids_tell_versions", func() string {
		before, err := fs.Stat("/small")
		must(err)
		time.Sleep(20 * time.Millisecond)
		fid, err := fs.Open("/small", plan9.OWRITE)
		must(err)
		_, err = fid.Write([]byte("changed"))
		must(err)
		must(fid.Close())
		after, err := fs.Stat("/small")
		must(err)
		check(before.Qid.Path == after.Qid.Path, "the path changed")
		check(before.Qid.Vers != after.Qid.Vers, "the version did not change")
		return ""
	})
}
