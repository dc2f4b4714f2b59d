/* line.h - what line.c, which reads from anything, and line_edit.c, which edits at a terminal, tell
 * each other. */
#ifndef BITNET_CLI_LINE_H
#define BITNET_CLI_LINE_H

#include "chat.h"

/* A line that is edited (line_edit.c). */
typedef struct line_edit line_edit;

line_edit *line_edit_open(void); /* NULL: the program was built without libedit, or it fails */
void line_edit_close(line_edit *e);
/* `given`: text that stands in the line at first. */
line_result line_edit_read(line_edit *e, const char *prompt, const char *given, buffer *out);
void line_edit_remember(line_edit *e, const char *entry); /* for the arrow keys */

/* ---- complete.c: what Tab may mean ---- */

typedef struct completion {
    char **words; /* that the end of the line may become; sorted */
    size_t n;
    size_t n_typed;  /* bytes at the end of the line that every word begins with */
    size_t n_hidden; /* of these, bytes that a list of the words leaves out: a folder's name */
    bool spaced;     /* a word that is whole is followed by a space */
} completion;

/* Of line[0..n), the line up to the cursor. */
void complete_line(const char *line, size_t n, completion *out);
size_t complete_shared(const completion *c); /* bytes in which all words agree */
void complete_free(completion *c);

#endif
