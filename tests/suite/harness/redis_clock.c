/* Gives redis-server a wall time that a test sets: the time of this machine, and the seconds that the file FAKETIME_TIMESTAMP_FILE
   names. libfaketime itself and jemalloc, with which Redis is built, wait for each other. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

int gettimeofday(struct timeval *restrict time, void *restrict zone)
{
    struct timespec now;
    char ahead[32] = "";
    int file = open(getenv("FAKETIME_TIMESTAMP_FILE"), O_RDONLY);
    (void)zone;
    if (file >= 0) {
        ssize_t length = read(file, ahead, sizeof ahead - 1);
        ahead[length > 0 ? length : 0] = 0;
        close(file);
    }
    clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec + atol(ahead);
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}
