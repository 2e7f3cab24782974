/* A process that no signal stops: it waits in the kernel until its child, which has its memory, ends. */
#define _GNU_SOURCE
#include <unistd.h>

int main(void) {
    if (vfork() == 0) {
        pause();
        _exit(0);
    }
    return 0;
}
