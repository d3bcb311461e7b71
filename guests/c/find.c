/* find DIR… [-name PATTERN]: prints every path beneath the directories whose last name matches.
 * The benchmark of ActiveStorage: `find . -name itimer.c`. */

#include "walk.h"

#include <errno.h>
#include <fnmatch.h>

static const char *pattern;
static int failed;

static void visit(char *path, size_t len);

static void show(char *path, size_t len, const struct dirent *entry)
{
	if (!pattern || !fnmatch(pattern, entry->d_name, 0))
		puts(path);
	if (entry->d_type == DT_DIR)
		visit(path, len);
}

static void visit(char *path, size_t len)
{
	DIR *dir = opendir(path);
	if (!dir)
		fprintf(stderr, "find: %s: %s\n", path, strerror(errno));
	if (!dir || !walk("find", dir, path, len, show))
		failed = 1;
}

int main(int argc, char **argv)
{
	int last = argc;
	if (argc > 3 && !strcmp(argv[argc - 2], "-name")) {
		pattern = argv[argc - 1];
		last = argc - 2;
	}
	if (last < 2) {
		fprintf(stderr, "usage: find DIR... [-name PATTERN]\n");
		return 2;
	}
	for (int i = 1; i < last; i++) {
		static char path[PATH_BYTES];
		if (strlen(argv[i]) >= PATH_BYTES)
			return 2;
		strcpy(path, argv[i]);
		visit(path, strlen(path));
	}
	return failed;
}
