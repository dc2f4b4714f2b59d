/* history.h - lines typed, kept in a file between sessions. */
#ifndef BITNET_CLI_HISTORY_H
#define BITNET_CLI_HISTORY_H

#include "cli.h"

/* The file that --history means, to be freed; NULL: none. Makes its folder if it is the default
 * one.
 */
char *history_path(const args *a);
/* Tells the entries, oldest first. A file that is not there, not readable or not ours gives none.
 */
void history_read(const char *path, void (*each)(void *user, const char *entry), void *user);
/* Appends an entry; false: it could not be written. */
bool history_append(const char *path, const char *entry);

#endif
