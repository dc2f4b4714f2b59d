/* short_memory.h - whether something that this thread makes lacks a part for want of memory.
 *
 * Where jansson cannot grow a text it drops characters; where a member or a piece of text cannot be
 * added the caller may not look. A body, a prompt or a reply would be shorter in silence. So
 * whoever gets no memory for a part says so here, and nothing is begun or sent after that but an
 * error. */
#ifndef SRV_SHORT_MEMORY_H
#define SRV_SHORT_MEMORY_H

#include <jansson.h>
#include <stdbool.h>

/* From now on jansson says so; once, before other threads use it. */
void srv_memory_watch(void);
/* There was no memory for a part of what this thread makes. */
void srv_memory_lost(void);
/* That was so since the thread last forgot. */
bool srv_memory_short(void);
void srv_memory_forget(void);
/* The text of a value, compact, to be freed. NULL: no memory for all of it, or the value, which may
 * be NULL, lacks something. */
char *srv_json_whole(const json_t *value);
/* Puts memory by for reading n bytes of JSON by others on this thread, who keep nothing of it;
 * _release lets go of it. False: there is none. */
bool srv_memory_reserve(size_t n);
void srv_memory_release(void);
/* The value of a text, as json_loadb has it; also NULL where memory is short. */
json_t *srv_json_load(const char *text, size_t n, size_t flags, json_error_t *error);

#endif
