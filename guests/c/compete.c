/* compete sleep | compete spin | compete scan DIR: wants the processor, or the files of a
 * directory, again and again until somebody ends it. The competitor of ActiveStorage, appendix B,
 * and the same without its sleep. */

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static volatile unsigned long turns;

static int scan(const char *dir)
{
	static char path[4096], buffer[65536];
	DIR *list = opendir(dir);
	if (!list)
		return -1;
	struct dirent *entry;
	while ((entry = readdir(list))) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
		int fd = open(path, O_RDONLY);
		ssize_t got = fd < 0 ? -1 : 1;
		while (got > 0 && (got = read(fd, buffer, sizeof buffer)) > 0)
			for (ssize_t i = 0; i < got; i++)
				turns += buffer[i] == '\n';
		if (fd >= 0)
			close(fd);
	}
	return closedir(list);
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "sleep"))
		for (;;) {
			sleep(1);
			for (int j = 0; j < 1000000; j++)
				turns++;
		}
	if (argc == 2 && !strcmp(argv[1], "spin"))
		for (;;)
			turns++;
	if (argc == 3 && !strcmp(argv[1], "scan"))
		while (!scan(argv[2]))
			;
	fprintf(stderr, "usage: compete sleep | compete spin | compete scan DIR\n");
	return 2;
}
