/* find DIR… [-name PATTERN]: prints every path beneath the directories whose last name matches.
 * The benchmark of ActiveStorage: `find . -name itimer.c`. */

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 4096 };

static const char *pattern;
static int failed;

static void visit(char *path, size_t len)
{
	DIR *dir = opendir(path);
	if (!dir) {
		fprintf(stderr, "find: %s: %s\n", path, strerror(errno));
		failed = 1;
		return;
	}
	struct dirent *entry;
	while ((entry = readdir(dir))) {
		const char *name = entry->d_name;
		if (!strcmp(name, ".") || !strcmp(name, ".."))
			continue;
		const char *slash = len && path[len - 1] == '/' ? "" : "/";
		int more = snprintf(path + len, PATH_BYTES - len, "%s%s", slash, name);
		if (more < 0 || len + more >= PATH_BYTES) {
			fprintf(stderr, "find: %s: too long\n", name);
			failed = 1;
		} else {
			if (!pattern || !fnmatch(pattern, name, 0))
				puts(path);
			if (entry->d_type == DT_DIR)
				visit(path, len + more);
		}
		path[len] = '\0';
	}
	closedir(dir);
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
