/* wc [FILE…]: counts lines, words and bytes of files, or of the input. */

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct counts {
	unsigned long lines, words, bytes;
};

static int count(int fd, struct counts *counts)
{
	static unsigned char buffer[65536];
	int inside = 0;
	ssize_t got;
	while ((got = read(fd, buffer, sizeof buffer)) > 0) {
		counts->bytes += got;
		for (ssize_t i = 0; i < got; i++) {
			int blank = isspace(buffer[i]) != 0;
			counts->lines += buffer[i] == '\n';
			counts->words += inside && blank;
			inside = !blank;
		}
	}
	counts->words += inside;
	return got < 0 ? -1 : 0;
}

static void say(const struct counts *counts, const char *name)
{
	printf("%lu %lu %lu %s\n", counts->lines, counts->words, counts->bytes, name);
}

int main(int argc, char **argv)
{
	struct counts sum = { 0 };
	int failed = 0;
	if (argc < 2) {
		if (count(STDIN_FILENO, &sum))
			return 1;
		say(&sum, "-");
		return 0;
	}
	for (int i = 1; i < argc; i++) {
		struct counts one = { 0 };
		int fd = open(argv[i], O_RDONLY);
		if (fd < 0 || count(fd, &one)) {
			fprintf(stderr, "wc: %s: %s\n", argv[i], strerror(errno));
			failed = 1;
		} else {
			say(&one, argv[i]);
		}
		if (fd >= 0)
			close(fd);
		sum.lines += one.lines;
		sum.words += one.words;
		sum.bytes += one.bytes;
	}
	if (argc > 2)
		say(&sum, "total");
	return failed;
}
