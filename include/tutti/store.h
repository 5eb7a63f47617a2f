/* tutti: a store of the program, through which the ranks find each other. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <tutti/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A key-value store of the program, through which the ranks find each other. All ranks share it,
   and it must exist as long as they do. A key has up to 1 KiB and a value up to 1 MiB, of any
   bytes. Any thread calls the functions, several at a time. Each must end within `limit_ms`: it
   returns tuttiErrorTimeout if it could not, and tuttiErrorPeerLost if the store is gone. The
   library copies the struct. Only `context` and `release` may be null. */
typedef struct tuttiStore_t {
  size_t size;
  void* context; /* passed to each function */
  tuttiResult_t (*set)(void* context, const void* key, size_t key_bytes, const void* value,
                       size_t value_bytes, int64_t limit_ms);
  /* Waits until the key has a value. Sets *value_bytes to the value's length and writes as much of
     the value as fits into `capacity` bytes. If it does not fit, the library calls again with more
     room. */
  tuttiResult_t (*get)(void* context, const void* key, size_t key_bytes, void* value,
                       size_t capacity, size_t* value_bytes, int64_t limit_ms);
  /* Adds `amount` to the decimal number under the key (0 if there is none) and sets *sum to the
     result. The addition is atomic among ranks. */
  tuttiResult_t (*add)(void* context, const void* key, size_t key_bytes, int64_t amount,
                       int64_t* sum, int64_t limit_ms);
  /* Returns as soon as the key has a value. */
  tuttiResult_t (*wait)(void* context, const void* key, size_t key_bytes, int64_t limit_ms);
  /* Called once, after the last communicator has stopped using the store. */
  void (*release)(void* context);
} tuttiStore_t;
#define TUTTI_STORE_INITIALIZER \
  { sizeof(tuttiStore_t), NULL, NULL, NULL, NULL, NULL, NULL }

#ifdef __cplusplus
}
#endif
