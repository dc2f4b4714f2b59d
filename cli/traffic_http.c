/* traffic_http.c - one HTTP/1.1 connection of the load generator: sends a request, takes the events
 * of its answer as they come. It understands what servers send, no more. */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "traffic.h"

enum { HEAD_MAX = 65536, LINE_MAX_BYTES = 1 << 20 };

int traffic_parse(const char *url, traffic_server *out)
{
    const char *rest = strncmp(url, "http://", 7) == 0 ? url + 7 : url;
    size_t n = strcspn(rest, "/");
    const char *colon = memchr(rest, ':', n);
    if (rest[0] == '[' && memchr(rest, ']', n)) /* [::1]:8080 */
        colon = memchr(strchr(rest, ']'), ':', n - (size_t)(strchr(rest, ']') - rest));
    size_t n_host = colon ? (size_t)(colon - rest) : n;
    size_t n_port = colon ? n - n_host - 1 : 0;
    if (strncmp(url, "https:", 6) == 0)
        return fail(EXIT_USAGE, "--server: %s: only http is spoken here", url);
    if (!n_host || n_host >= sizeof out->host || n_port >= sizeof out->port)
        return fail(EXIT_USAGE, "--server: %s is no address such as http://127.0.0.1:8080", url);
    bool bracket = rest[0] == '[' && n_host > 2;
    snprintf(out->host, sizeof out->host, "%.*s", (int)(n_host - 2 * bracket), rest + bracket);
    snprintf(out->port, sizeof out->port, "%.*s", n_port ? (int)n_port : 2,
             n_port ? colon + 1 : "80");
    return EXIT_OK;
}

/* ---- connecting and sending ---- */

static int open_socket(const struct addrinfo *a)
{
    int one = 1;
    int fd = socket(a->ai_family, a->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, a->ai_protocol);
    if (fd < 0)
        return -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(fd, a->ai_addr, a->ai_addrlen) == 0 || errno == EINPROGRESS)
        return fd;
    close(fd);
    return -1;
}

static bool connect_to(talk *t, const traffic_server *s)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    if (getaddrinfo(s->host, s->port, &hints, &found) != 0)
        return false;
    t->fd = open_socket(found);
    freeaddrinfo(found);
    return t->fd >= 0;
}

bool talk_begin(talk *t, const traffic_server *server, const char *body)
{
    t->out.n = t->in.n = t->line.n = t->n_sent = 0;
    t->status = 0;
    t->done = t->chunked = false;
    t->stays = true;
    t->n_usage = -1;
    t->n_events = 0;
    text_printf(&t->out, "POST /v1/completions HTTP/1.1\r\nHost: %s:%s\r\n", server->host,
                server->port);
    if (server->key)
        text_printf(&t->out, "Authorization: Bearer %s\r\n", server->key);
    text_printf(&t->out, "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
                strlen(body));
    text_puts(&t->out, body);
    t->state = t->fd < 0 ? TALK_CONNECTING : TALK_SENDING;
    return t->fd >= 0 || connect_to(t, server);
}

void talk_close(talk *t)
{
    if (t->fd >= 0)
        close(t->fd);
    t->fd = -1;
    free_buffer(&t->out);
    free_buffer(&t->in);
    free_buffer(&t->line);
    t->state = TALK_IDLE;
}

static void hang_up(talk *t)
{
    close(t->fd);
    t->fd = -1;
}

/* False: the connection is broken. */
static bool send_more(talk *t)
{
    int why = 0;
    socklen_t n_why = sizeof why;
    if (t->state == TALK_CONNECTING &&
        (getsockopt(t->fd, SOL_SOCKET, SO_ERROR, &why, &n_why) != 0 || why))
        return false;
    ssize_t n = send(t->fd, t->out.data + t->n_sent, t->out.n - t->n_sent, MSG_NOSIGNAL);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR || errno == ENOTCONN;
    t->n_sent += (size_t)n;
    t->state = t->n_sent == t->out.n ? TALK_HEAD : TALK_SENDING;
    return true;
}

short talk_events(const talk *t)
{
    return t->state == TALK_IDLE                                     ? 0
           : t->state == TALK_CONNECTING || t->state == TALK_SENDING ? POLLOUT
                                                                     : POLLIN;
}

/* ---- reading ---- */

static void drop(buffer *b, size_t n)
{
    if (n)
        memmove(b->data, b->data + n, b->n - n);
    b->n -= n;
}

static const char *header(const char *head, const char *name)
{
    size_t n = strlen(name);
    for (const char *line = strstr(head, "\r\n"); line; line = strstr(line + 2, "\r\n"))
        if (strncasecmp(line + 2, name, n) == 0 && line[2 + n] == ':')
            return line + 3 + n + strspn(line + 3 + n, " ");
    return NULL;
}

/* False: it is no HTTP. */
static bool read_head(talk *t)
{
    while (t->in.n && (t->in.data[0] == '\r' || t->in.data[0] == '\n')) /* of the answer before */
        drop(&t->in, 1);
    text_add(&t->in, "", 0);
    char *end = t->in.n ? strstr(t->in.data, "\r\n\r\n") : NULL;
    if (!end)
        return t->in.n < HEAD_MAX;
    end[2] = '\0';
    const char *length = header(t->in.data, "Content-Length");
    const char *coding = header(t->in.data, "Transfer-Encoding");
    const char *connection = header(t->in.data, "Connection");
    t->chunked = coding && strncasecmp(coding, "chunked", 7) == 0;
    t->stays = !(connection && strncasecmp(connection, "close", 5) == 0);
    t->wants_size = t->chunked;
    t->n_left = length ? strtoul(length, NULL, 10) : 0;
    bool ok = sscanf(t->in.data, "HTTP/1.%*d %d", &t->status) == 1 && (t->chunked || length);
    drop(&t->in, (size_t)(end - t->in.data) + 4);
    t->state = TALK_BODY;
    t->done = ok && !t->chunked && t->n_left == 0;
    return ok;
}

/* One line of the events. */
static void take_line(talk *t, talk_news *news)
{
    static const char usage[] = "\"completion_tokens\":";
    text_add(&t->line, "", 0);
    const char *found;
    if (t->line.n >= 6 && memcmp(t->line.data, "data: ", 6) == 0 &&
        strcmp(t->line.data + 6, "[DONE]") != 0) {
        found = strstr(t->line.data, usage);
        if (found)
            t->n_usage = strtol(found + sizeof usage - 1, NULL, 10);
        if (strstr(t->line.data, "\"text\":"))
            news->n_tokens++;
    }
    t->line.n = 0;
}

static bool take_body(talk *t, const char *bytes, size_t n, talk_news *news)
{
    while (n) {
        const char *newline = memchr(bytes, '\n', n);
        size_t k = newline ? (size_t)(newline - bytes) : n;
        text_add(&t->line, bytes, k);
        if (newline)
            take_line(t, news);
        k += newline != NULL;
        bytes += k;
        n -= k;
    }
    return t->line.n < LINE_MAX_BYTES;
}

/* The size of the next chunk; false: it is not there whole. */
static bool take_size(talk *t, bool *broken)
{
    text_add(&t->in, "", 0);
    char *at = t->in.data, *end = t->in.n ? strstr(at, "\r\n") : NULL;
    if (!end)
        return false;
    char *digits;
    t->n_left = strtoul(at, &digits, 16);
    *broken = digits == at;
    t->done = t->n_left == 0;
    drop(&t->in, (size_t)(end - at) + 2);
    t->wants_size = false;
    return true;
}

/* Uses what was read; false: the answer is broken. */
static bool use_body(talk *t, talk_news *news)
{
    bool broken = false;
    while (!t->done && t->in.n) {
        if (t->wants_size && !take_size(t, &broken))
            break;
        if (broken)
            return false;
        size_t n = t->in.n < t->n_left ? t->in.n : t->n_left;
        if (!take_body(t, t->in.data, n, news))
            return false;
        drop(&t->in, n);
        t->n_left -= n;
        if (!t->n_left && !t->chunked)
            t->done = true;
        if (t->n_left || !t->chunked || t->done)
            continue;
        if (t->in.n < 2) /* the end of the chunk's line */
            break;
        drop(&t->in, 2);
        t->wants_size = true;
    }
    return true;
}

/* False: the connection has ended. */
static bool read_more(talk *t)
{
    char *at = text_room(&t->in, 65536);
    ssize_t n = recv(t->fd, at, 65536, 0);
    if (n > 0)
        t->in.n += (size_t)n;
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

static void finish(talk *t, bool whole, talk_news *news)
{
    news->ended = true;
    news->failed = !whole || t->status != 200;
    if (!whole || !t->stays)
        hang_up(t);
    t->state = TALK_IDLE;
}

talk_news talk_go(talk *t)
{
    talk_news news = {0};
    bool ok = true;
    if (t->state == TALK_CONNECTING || t->state == TALK_SENDING)
        ok = send_more(t);
    else if (t->state != TALK_IDLE)
        ok = read_more(t);
    if (ok && t->state == TALK_HEAD)
        ok = read_head(t);
    if (ok && t->state == TALK_BODY)
        ok = use_body(t, &news);
    if (!ok || t->done)
        finish(t, ok, &news);
    return news;
}
