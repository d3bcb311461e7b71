/* Makes every flush of a disk a millisecond longer, for every engine in the same way.
 *
 * Preloaded by `cargo xtask bench store`. What is delayed is what waits for a disk: fsync,
 * fdatasync, and writes that are durable by themselves (RWF_DSYNC, RWF_SYNC). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/uio.h>
#include <time.h>

static void wait_for_the_disk(void)
{
    struct timespec rest = {0, 1000000};
    nanosleep(&rest, 0);
}

int fsync(int fd)
{
    wait_for_the_disk();
    return ((int (*)(int)) dlsym(RTLD_NEXT, "fsync"))(fd);
}

int fdatasync(int fd)
{
    wait_for_the_disk();
    return ((int (*)(int)) dlsym(RTLD_NEXT, "fdatasync"))(fd);
}

ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t at, int flags)
{
    if (flags & (RWF_DSYNC | RWF_SYNC))
        wait_for_the_disk();
    return ((ssize_t (*)(int, const struct iovec *, int, off_t, int))
                dlsym(RTLD_NEXT, "pwritev2"))(fd, parts, count, at, flags);
}

ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off64_t at, int flags)
{
    return pwritev2(fd, parts, count, at, flags);
}
