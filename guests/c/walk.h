/* Going through all that is beneath a directory. */

#ifndef WALK_H
#define WALK_H

#include <dirent.h>
#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 4096 };

/* Shows every entry of a directory with its path, which is so long and has PATH_BYTES of room; then
 * closes it. Whether all was shown: what is too long is complained of. */
static int walk(const char *program, DIR *dir, char *path, size_t len,
		void (*show)(char *path, size_t len, const struct dirent *entry))
{
	struct dirent *entry;
	int all = 1;
	while ((entry = readdir(dir))) {
		const char *name = entry->d_name;
		if (!strcmp(name, ".") || !strcmp(name, ".."))
			continue;
		const char *slash = len && path[len - 1] == '/' ? "" : "/";
		int more = snprintf(path + len, PATH_BYTES - len, "%s%s", slash, name);
		if (more < 0 || len + more >= PATH_BYTES) {
			fprintf(stderr, "%s: %s: too long\n", program, name);
			all = 0;
		} else {
			show(path, len + more, entry);
		}
		path[len] = '\0';
	}
	closedir(dir);
	return all;
}

#endif
