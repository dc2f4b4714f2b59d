/* ollama_read.h - a request of Ollama's /api/chat or /api/generate as an ask. */
#ifndef SRV_OLLAMA_READ_H
#define SRV_OLLAMA_READ_H

#include "ask/ask.h"

enum { SRV_OLLAMA_NAME_MAX = 256 };

/* An ask and the values made for it: what the ask borrows lives here and in the body. */
typedef struct srv_ollama {
    srv_ask ask;
    const char *called;                   /* as the client called it */
    json_t *messages, *sampling, *kwargs; /* OpenAI's forms, made */
    bool chat;                            /* /api/chat */
    bool stream;
    bool nothing; /* no prompt: the client wants the model loaded, */
    bool unload;  /* or unloaded */
} srv_ollama;

/* Reads the body. False: the client has been told. _free in any case. */
bool srv_ollama_read(srv_exchange *x, bool chat, srv_ollama *r);
void srv_ollama_free(srv_ollama *r);
/* The field `model`, or `name`. False: the client has been told. */
bool srv_ollama_model(srv_exchange *x, json_t *body, const char **called);

#endif
