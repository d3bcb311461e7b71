/* count TEXT FILE…: how often a text stands in files; those in which it does not are left out. */

#include "upcall.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BUFFER (256 << 10)

/* What does not overlap, as `grep -o` counts. */
static long count(int fd, const char *text, size_t len)
{
	static char buffer[BUFFER];
	size_t have = 0;
	long found = 0;
	ssize_t got;
	while ((got = read(fd, buffer + have, BUFFER - have)) > 0) {
		size_t at = 0;
		uint32_t next;
		have += got;
		while ((next = upcall_find(buffer + at, have - at, text, len)) != UPCALL_NOWHERE) {
			at += next + len;
			found++;
		}
		/* A text may have begun at the end. */
		if (have - at >= len)
			at = have - (len - 1);
		have -= at;
		memmove(buffer, buffer + at, have);
	}
	return got < 0 ? -1 : found;
}

int main(int argc, char **argv)
{
	int failed = 0;
	size_t len = argc > 1 ? strlen(argv[1]) : 0;
	if (argc < 3 || len == 0 || len > BUFFER / 2) {
		fprintf(stderr, "usage: count TEXT FILE...\n");
		return 2;
	}
	for (int i = 2; i < argc; i++) {
		int fd = open(argv[i], O_RDONLY);
		long found = fd < 0 ? -1 : count(fd, argv[1], len);
		if (found < 0) {
			fprintf(stderr, "count: %s: %s\n", argv[i], strerror(errno));
			failed = 1;
		} else if (found > 0) {
			printf("%ld %s\n", found, argv[i]);
		}
		if (fd >= 0)
			close(fd);
	}
	return failed;
}
