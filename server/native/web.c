/* web.c - finds a file of the chat page by the path of a URL. */
#include "native/web.h"

#include <string.h>

const srv_file *srv_web_find(const char *path)
{
    if (!strcmp(path, "/")) {
        path = "/index.html";
    }
    for (size_t i = 0; i < srv_n_web_files; i++) {
        if (!strcmp(path, srv_web_files[i].path)) {
            return &srv_web_files[i];
        }
    }
    return NULL;
}
