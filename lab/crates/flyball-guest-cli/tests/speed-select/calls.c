/*
 * Makes calls of Speed Select's device node as a list names them, and prints what each is answered: the return value and
 * the first 160 bytes of its argument afterwards, or the errno. Built by the test, run in the guest.
 *
 * calls LIST: a line a call, "user number argument name": the user it is made as (the node is open already then), the
 * ioctl's number (decimal), the argument's bytes (hexadecimal; the name is the rest of the line). Each call is made by
 * a process of its own: some kernels end one. Then no further call is made, because a lock may have stayed taken.
 * Number 0 tries to open the node instead.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *node = "/dev/isst_interface";

static const char *word(int error)
{
    static const struct { int error; const char *word; } words[] = {
        {EPERM, "EPERM"}, {ENOENT, "ENOENT"}, {EIO, "EIO"}, {ENXIO, "ENXIO"}, {EAGAIN, "EAGAIN"}, {ENOMEM, "ENOMEM"},
        {EACCES, "EACCES"}, {EFAULT, "EFAULT"}, {EBUSY, "EBUSY"}, {ENODEV, "ENODEV"}, {EINVAL, "EINVAL"},
        {ENOTTY, "ENOTTY"}, {ERANGE, "ERANGE"}, {ETIMEDOUT, "ETIMEDOUT"}, {EOPNOTSUPP, "EOPNOTSUPP"},
    };
    static char other[16];
    for (unsigned i = 0; i < sizeof words / sizeof *words; i++)
        if (words[i].error == error) return words[i].word;
    snprintf(other, sizeof other, "errno %d", error);
    return other;
}

static int answer(int open_node, unsigned long number, uint8_t *argument, unsigned size, const char *name)
{
    if (number == 0) {
        int found = open(node, O_RDONLY);
        printf("%s %s\n", name, found < 0 ? word(errno) : "ok");
        return 0;
    }
    int result = ioctl(open_node, number, argument);
    if (result < 0) {
        printf("%-58s %s\n", name, word(errno));
        return 0;
    }
    printf("%-58s %d  ", name, result);
    for (unsigned i = 0; i < size && i < 160; i++) printf("%02x", argument[i]);
    printf("\n");
    return 0;
}

int main(int count, char **arguments)
{
    FILE *list = count > 1 ? fopen(arguments[1], "r") : NULL;
    int open_node = open(node, O_RDWR);
    if (!list || open_node < 0) {
        fprintf(stderr, "calls: %s\n", word(errno));
        return 1;
    }
    static char line[8192];
    while (fgets(line, sizeof line, list)) {
        static uint8_t argument[4096];
        static char digits[8192], name[256];
        unsigned user;
        unsigned long number;
        line[strcspn(line, "\n")] = 0;
        if (sscanf(line, "%u %lu %8191s %255[^\n]", &user, &number, digits, name) != 4) {
            fprintf(stderr, "calls: what is '%.60s'?\n", line);
            return 1;
        }
        unsigned size = strlen(digits) / 2;
        memset(argument, 0, sizeof argument);
        for (unsigned i = 0; i < size; i++) {
            unsigned byte;
            sscanf(digits + 2 * i, "%2x", &byte);
            argument[i] = byte;
        }
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            if (user && (setgid(user) || setuid(user))) _exit(1);
            int code = answer(open_node, number, argument, size, name);
            fflush(stdout);
            _exit(code);
        }
        int status = 0;
        if (child < 0 || waitpid(child, &status, 0) < 0) return 1;
        if (status) {
            printf("%s: killed by signal %d\n", name, WIFSIGNALED(status) ? WTERMSIG(status) : 0);
            return 0;
        }
    }
    return 0;
}
