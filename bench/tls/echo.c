/* What OpenSSL costs by itself: a server that sends one stored value back for each line, and does nothing else.
 *
 * It knows as much of memcached's text protocol as the load generator needs: `set` keeps the value, whatever the key,
 * `get` sends it under the requested key. One thread, one epoll, blocking sockets: its clients read all
 * replies before they send again. Usage: echo PORT CHAIN_FILE KEY_FILE
 */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { INPUT_BYTES = 1 << 20, OUTPUT_BYTES = 1 << 22, VALUE_BYTES_MAX = 1 << 16, EVENTS_MAX = 64 };

struct connection {
    SSL *ssl;
    int fd;
    size_t length;
    char input[INPUT_BYTES];
};

static char value[VALUE_BYTES_MAX + 2];
static size_t value_bytes;
static char output[OUTPUT_BYTES];
static size_t output_bytes;

static void fail(const char *what) {
    perror(what);
    ERR_print_errors_fp(stderr);
    exit(1);
}

static void append(const char *data, size_t length) {
    if (output_bytes + length > OUTPUT_BYTES) fail("output");
    memcpy(output + output_bytes, data, length);
    output_bytes += length;
}

static void append_text(const char *text) { append(text, strlen(text)); }

/* Executes one command; returns the bytes that it takes, or 0 if it has not arrived whole. */
static size_t execute(char *input, size_t length) {
    char *end = memchr(input, '\n', length);
    if (!end) return 0;
    size_t line_bytes = (size_t)(end - input) + 1;
    if (!strncmp(input, "get ", 4)) {
        char length_text[32];
        char *key = input + 4;
        size_t key_bytes = line_bytes - 4 - 2;
        append_text("VALUE ");
        append(key, key_bytes);
        append(length_text, (size_t)sprintf(length_text, " 0 %zu\r\n", value_bytes));
        append(value, value_bytes + 2);
        append_text("END\r\n");
    } else if (!strncmp(input, "set ", 4)) {
        size_t new_value_bytes = 0;
        if (sscanf(input, "set %*s %*u %*d %zu", &new_value_bytes) != 1 || new_value_bytes > VALUE_BYTES_MAX) fail("set");
        if (length < line_bytes + new_value_bytes + 2) return 0;
        memcpy(value, input + line_bytes, new_value_bytes + 2);
        value_bytes = new_value_bytes;
        append_text("STORED\r\n");
        return line_bytes + new_value_bytes + 2;
    } else if (!strncmp(input, "stats", 5)) {
        char text[64];
        append(text, (size_t)sprintf(text, "STAT pid %d\r\nSTAT threads 1\r\nEND\r\n", getpid()));
    } else if (!strncmp(input, "version", 7)) {
        append_text("VERSION OpenSSL alone\r\n");
    } else if (!strncmp(input, "delete ", 7)) {
        append_text("DELETED\r\n");
    } else {
        append_text("ERROR\r\n");
    }
    return line_bytes;
}

/* Serves what has arrived; 0 at the end of the connection. */
static int serve(struct connection *connection) {
    do {
        int free_bytes = (int)(INPUT_BYTES - connection->length);
        int received = SSL_read(connection->ssl, connection->input + connection->length, free_bytes);
        if (received <= 0) return 0;
        connection->length += (size_t)received;
    } while (SSL_pending(connection->ssl) > 0);
    size_t consumed = 0, command_bytes;
    output_bytes = 0;
    while ((command_bytes = execute(connection->input + consumed, connection->length - consumed)) > 0) consumed += command_bytes;
    memmove(connection->input, connection->input + consumed, connection->length - consumed);
    connection->length -= consumed;
    return output_bytes == 0 || SSL_write(connection->ssl, output, (int)output_bytes) > 0;
}

static void accept_client(int listener, int epoll_fd, SSL_CTX *context) {
    struct connection *connection = calloc(1, sizeof *connection);
    int yes = 1;
    connection->fd = accept(listener, NULL, NULL);
    if (connection->fd < 0) fail("accept");
    setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    connection->ssl = SSL_new(context);
    SSL_set_fd(connection->ssl, connection->fd);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
    if (SSL_accept(connection->ssl) == 1 && epoll_ctl(epoll_fd, EPOLL_CTL_ADD, connection->fd, &event) == 0) return;
    close(connection->fd);
    SSL_free(connection->ssl);
    free(connection);
}

int main(int argument_count, char **arguments) {
    if (argument_count != 4) return 2;
    signal(SIGPIPE, SIG_IGN);
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
    SSL_CTX_set_mode(context, SSL_MODE_AUTO_RETRY);
    if (SSL_CTX_use_certificate_chain_file(context, arguments[2]) != 1) fail("certificate");
    if (SSL_CTX_use_PrivateKey_file(context, arguments[3], SSL_FILETYPE_PEM) != 1) fail("key");
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(arguments[1]))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 512)) fail("listen");
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener, &event)) fail("epoll");
    for (;;) {
        struct epoll_event events[EVENTS_MAX];
        int ready = epoll_wait(epoll_fd, events, EVENTS_MAX, -1);
        for (int index = 0; index < ready; index++) {
            struct connection *connection = events[index].data.ptr;
            if (!connection) {
                accept_client(listener, epoll_fd, context);
            } else if (!serve(connection)) {
                close(connection->fd);
                SSL_free(connection->ssl);
                free(connection);
            }
        }
    }
}
