# rm -r of a directory that other people filled, and the errors of rmdir.
rm -r /mnt/doomed
refuse [ -e /mnt/doomed ]
mkdir full
: > full/file
refuse rmdir full
refuse rmdir full/file
refuse rm full
rm full/file
rmdir full
refuse rmdir full
