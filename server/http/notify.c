/* notify.c - tells the supervisor how the process is: systemd's protocol is a datagram with lines
 * of NAME=VALUE. */
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "http/http.h"

void srv_notify(const srv_config *config, const char *state)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    const char *path = config->notify_socket;
    size_t n = path ? strlen(path) : 0;
    if (n < 2 || n >= sizeof to.sun_path || (path[0] != '/' && path[0] != '@'))
        return;
    memcpy(to.sun_path, path, n);
    if (path[0] == '@') /* a name that is in no file system */
        to.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    ssize_t sent = sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&to, length);
    (void)sent; /* a supervisor that does not listen is its own business */
    close(fd);
}
