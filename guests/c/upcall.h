/* What an Upcall server does for storelets faster than they can, for C.
 *
 * The functions look at memory where it is, with the server's widest vectors. Memory outside of
 * the program's ends it. */

#ifndef UPCALL_H
#define UPCALL_H

#include <stddef.h>
#include <stdint.h>

#define UPCALL(name) __attribute__((import_module("upcall"), import_name(name)))

/* A place that is not there. */
#define UPCALL_NOWHERE UINT32_MAX

/* The first and the last place of a byte, or UPCALL_NOWHERE; how often it is there. */
UPCALL("find_byte") uint32_t upcall_find_byte(const void *at, size_t len, uint32_t byte);
UPCALL("find_byte_last") uint32_t upcall_find_byte_last(const void *at, size_t len, uint32_t byte);
UPCALL("count_byte") uint32_t upcall_count_byte(const void *at, size_t len, uint32_t byte);

/* The first place of a text of at most 64 KiB, or UPCALL_NOWHERE. */
UPCALL("find") uint32_t upcall_find(const void *at, size_t len, const void *text, size_t text_len);

/* The CRC-32 (IEEE 802.3) of what has the first as its own, and more bytes; 0 is that of nothing. */
UPCALL("crc32") uint32_t upcall_crc32(uint32_t before, const void *at, size_t len);

/* Takes blocks of 64 bytes into a state of SHA-256 (FIPS 180-4, 6.2.2). */
UPCALL("sha256_blocks") void upcall_sha256_blocks(uint32_t state[8], const void *at, size_t blocks);

#endif
