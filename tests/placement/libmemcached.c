/* Prints libmemcached's server index of each key on standard input: the reference for `ketama`, `ketama-oneatatime`,
 * `modula` and `crc`. Usage: libmemcached RULE host:port*weight... < keys */
#include <libmemcached/memcached.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void set_behaviors(memcached_st *client, const char *rule) {
    if (!strcmp(rule, "ketama")) {
        memcached_behavior_set(client, MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED, 1);
    } else if (!strcmp(rule, "ketama-oneatatime")) {
        memcached_behavior_set(client, MEMCACHED_BEHAVIOR_DISTRIBUTION, MEMCACHED_DISTRIBUTION_CONSISTENT);
    } else if (!strcmp(rule, "crc")) {
        memcached_behavior_set(client, MEMCACHED_BEHAVIOR_HASH, MEMCACHED_HASH_CRC);
    }
}

int main(int argc, char **argv) {
    memcached_st *client = memcached_create(NULL);
    set_behaviors(client, argv[1]);
    for (int index = 2; index < argc; index++) {
        char *star = strchr(argv[index], '*');
        unsigned weight = star ? (unsigned)atoi(star + 1) : 1;
        char *colon = strrchr(argv[index], ':');
        *colon = 0;
        memcached_server_add_with_weight(client, argv[index], (in_port_t)atoi(colon + 1), weight);
    }
    char *line = NULL;
    size_t capacity = 0;
    for (ssize_t length; (length = getline(&line, &capacity, stdin)) > 0;) {
        if (line[length - 1] == '\n') length--;
        printf("%u\n", memcached_generate_hash(client, line, (size_t)length));
    }
    free(line);
    memcached_free(client);
    return 0;
}
