/* wc [FILE|DIR…]: counts lines, words and bytes of files, of all that are beneath directories, or
 * of the input. Links are not followed. */

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

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

static void one(const char *path, struct counts *sum, int *failed)
{
	struct counts one = { 0 };
	int fd = open(path, O_RDONLY);
	if (fd < 0 || count(fd, &one)) {
		fprintf(stderr, "wc: %s: %s\n", path, strerror(errno));
		*failed = 1;
	} else {
		say(&one, path);
	}
	if (fd >= 0)
		close(fd);
	sum->lines += one.lines;
	sum->words += one.words;
	sum->bytes += one.bytes;
}

static void beneath(DIR *dir, char *path, size_t len, struct counts *sum, int *failed)
{
	struct dirent *entry;
	while ((entry = readdir(dir))) {
		const char *name = entry->d_name;
		if (!strcmp(name, ".") || !strcmp(name, ".."))
			continue;
		const char *slash = len && path[len - 1] == '/' ? "" : "/";
		int more = snprintf(path + len, PATH_BYTES - len, "%s%s", slash, name);
		if (more < 0 || len + more >= PATH_BYTES) {
			fprintf(stderr, "wc: %s: too long\n", name);
			*failed = 1;
		} else if (entry->d_type == DT_REG) {
			one(path, sum, failed);
		} else if (entry->d_type == DT_DIR) {
			DIR *below = opendir(path);
			if (below)
				beneath(below, path, len + more, sum, failed);
			else
				*failed = 1;
		}
		path[len] = '\0';
	}
	closedir(dir);
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
		static char path[PATH_BYTES];
		DIR *dir = strlen(argv[i]) < PATH_BYTES ? opendir(argv[i]) : NULL;
		if (!dir) {
			one(argv[i], &sum, &failed);
			continue;
		}
		strcpy(path, argv[i]);
		beneath(dir, path, strlen(path), &sum, &failed);
	}
	if (argc > 2)
		say(&sum, "total");
	return failed;
}
