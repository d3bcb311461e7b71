# A source tree out of the mount and into it again; links, modes and owners included.
mkdir /tmp/out
cp -a /mnt/source /tmp/out/source
cp -a /tmp/out/source in
list() {
    cd "$1"
    find . -type f | sort | xargs md5sum
    find . -type f -exec stat -c '%n %a %s %u %g %Y' {} + | sort
    find . -type l | sort | while read -r link; do echo "$link $(readlink "$link")"; done
}
(list /mnt/source) > /tmp/source.list
(list in) > /tmp/in.list
(list /tmp/out/source) > /tmp/out.list
cmp /tmp/source.list /tmp/out.list
cmp /tmp/in.list /tmp/out.list
echo "note: $(find in -type f | wc -l) files, $(find in -type l | wc -l) symbolic links"
rm -r /tmp/out
