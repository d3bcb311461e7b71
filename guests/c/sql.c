/* sql DATABASE [SQL…]: carries out SQL on a database file, or what its input says, and prints rows
 * with `|` between their columns. `:memory:` is a database of its own.
 *
 * SQLite's own shell needs processes and a terminal; this needs neither. Files are not locked:
 * preview 1 has no locks, so nobody else may write the database meanwhile. */

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int row(void *unused, int columns, char **values, char **names)
{
	(void)unused;
	(void)names;
	for (int i = 0; i < columns; i++)
		printf("%s%s", i ? "|" : "", values[i] ? values[i] : "");
	putchar('\n');
	return 0;
}

static int carry_out(sqlite3 *db, const char *sql)
{
	char *error = NULL;
	if (sqlite3_exec(db, sql, row, NULL, &error) == SQLITE_OK)
		return 0;
	fprintf(stderr, "sql: %s\n", error ? error : sqlite3_errmsg(db));
	sqlite3_free(error);
	return 1;
}

/* All of the input, as a string. */
static char *input(void)
{
	size_t len = 0, room = 65536, got;
	char *text = malloc(room);
	while (text && (got = fread(text + len, 1, room - len - 1, stdin)) > 0) {
		len += got;
		if (room - len < 2)
			text = realloc(text, room *= 2);
	}
	if (text)
		text[len] = '\0';
	return text;
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		fprintf(stderr, "usage: sql DATABASE [SQL...]\n");
		return 2;
	}
	sqlite3 *db = NULL;
	int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
	int opened = sqlite3_open_v2(argv[1], &db, flags, "unix-none");
	if (opened == SQLITE_CANTOPEN) {
		/* Perhaps nothing may be written. */
		sqlite3_close(db);
		opened = sqlite3_open_v2(argv[1], &db, SQLITE_OPEN_READONLY, "unix-none");
	}
	if (opened != SQLITE_OK) {
		fprintf(stderr, "sql: %s: %s\n", argv[1], sqlite3_errmsg(db));
		return 1;
	}
	int failed = 0;
	for (int i = 2; i < argc && !failed; i++)
		failed = carry_out(db, argv[i]);
	if (argc == 2) {
		char *text = input();
		failed = text ? carry_out(db, text) : 1;
		free(text);
	}
	return sqlite3_close(db) != SQLITE_OK || failed;
}
