/* scheduler_bytes.c - small things the scheduler's files share: bytes in a line, arrays that grow,
 * errors, the clock. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jobs/clock.h"
#include "jobs/scheduler_impl.h"

double srv_now_ms(void)
{
    return srv_clock_ms();
}

bitnet_status srv_error(bitnet_error *err, bitnet_status status, const char *format, ...)
{
    if (err) {
        va_list args;
        va_start(args, format);
        err->status = status;
        vsnprintf(err->message, sizeof err->message, format, args);
        va_end(args);
    }
    return status;
}

bitnet_status srv_no_memory(bitnet_error *err)
{
    return srv_error(err, BITNET_MEMORY, "the server is out of memory");
}

bool srv_room(void *array, size_t *cap, size_t n, size_t each)
{
    void *now; /* what kind of pointer `array` leads to is the caller's business */
    if (n <= *cap)
        return true;
    size_t more = *cap > SIZE_MAX / 2 ? n : 2 * *cap;
    if (more < n)
        more = n;
    memcpy(&now, array, sizeof now);
    void *moved = more > SIZE_MAX / each ? NULL : realloc(now, more * each);
    if (!moved)
        return false;
    memcpy(array, &moved, sizeof moved);
    *cap = more;
    return true;
}

bool srv_bytes_add(srv_bytes *b, const void *bytes, size_t n)
{
    if (n > SIZE_MAX - b->tail)
        return false;
    if (b->head == b->tail)
        b->head = b->tail = 0;
    if (b->tail + n > b->cap && b->head > b->cap / 2) { /* half of it is free: move */
        memmove(b->data, b->data + b->head, b->tail - b->head);
        b->tail -= b->head;
        b->head = 0;
    }
    if (b->tail + n > b->cap) {
        char *data = b->data;
        size_t least = b->tail + n < 256 ? 256 : b->tail + n;
        if (!srv_room(&data, &b->cap, least, 1))
            return false;
        b->data = data;
    }
    if (n)
        memcpy(b->data + b->tail, bytes, n);
    b->tail += n;
    return true;
}

void srv_bytes_free(srv_bytes *b)
{
    free(b->data);
    *b = (srv_bytes){0};
}
