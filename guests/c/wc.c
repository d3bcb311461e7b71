/* wc [FILE|DIR…]: counts lines, words and bytes of files, of all that are beneath directories, or
 * of the input. Links are not followed. */

#include "walk.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
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

static struct counts sum;
static int failed;

static void one(const char *path)
{
	struct counts one = { 0 };
	int fd = open(path, O_RDONLY);
	if (fd < 0 || count(fd, &one)) {
		fprintf(stderr, "wc: %s: %s\n", path, strerror(errno));
		failed = 1;
	} else {
		say(&one, path);
	}
	if (fd >= 0)
		close(fd);
	sum.lines += one.lines;
	sum.words += one.words;
	sum.bytes += one.bytes;
}

static void show(char *path, size_t len, const struct dirent *entry)
{
	if (entry->d_type == DT_REG) {
		one(path);
	} else if (entry->d_type == DT_DIR) {
		DIR *dir = opendir(path);
		if (!dir || !walk("wc", dir, path, len, show))
			failed = 1;
	}
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		if (count(STDIN_FILENO, &sum))
			return 1;
		say(&sum, "-");
		return 0;
	}
	for (int i = 1; i < argc; i++) {
		static char path[PATH_BYTES];
		DIR *dir = strlen(argv[i]) < PATH_BYTES ? opendir(argv[i]) : NULL;
		if (!dir) {
			one(argv[i]);
			continue;
		}
		strcpy(path, argv[i]);
		if (!walk("wc", dir, path, strlen(path), show))
			failed = 1;
	}
	if (argc > 2)
		say(&sum, "total");
	return failed;
}
