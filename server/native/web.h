/* web.h - the chat page: the files of server/web/, which the build puts into the program. Nothing
 * is read from disk, so the page is there wherever the command is. */
#ifndef SRV_WEB_H
#define SRV_WEB_H

#include <stddef.h>

typedef struct srv_file {
    const char *path; /* of the URL: "/app.js" */
    const char *content_type;
    const char *etag; /* with its quotes; another one whenever the bytes are others */
    const unsigned char *bytes;
    size_t n_bytes;
} srv_file;

/* The file at this path; "/" is the page itself. NULL: there is none. Any thread. */
const srv_file *srv_web_find(const char *path);

/* What every reply with such a file must carry beside its ETag. The page has no script and no style
 * in its HTML, loads nothing from elsewhere, and never makes HTML of a text; this header makes the
 * browser hold it to that. */
#define SRV_WEB_POLICY                                                                             \
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src "        \
    "'self'; "                                                                                     \
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "                                \
    "require-trusted-types-for 'script'; trusted-types 'none'"

/* Made by cmake/web_files.cmake. */
extern const srv_file srv_web_files[];
extern const size_t srv_n_web_files;

#endif
