/* An MPI library's calls behind the table of kernels/mpi/mpi.h: transfers of bytes that are begun and tested,
 * and the library's own sum. Compiled once per MPI library, with its headers; links to nothing of ours. */
#include "kernels/mpi/mpi.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 30 }; /* bytes of one message: MPI's counts are int */

static MPI_Request *request;
static int begun, capacity;

/* Room for one more request; NULL: out of memory. */
static MPI_Request *next_request(void) {
    if (begun == capacity) {
        const int wanted = capacity ? 2 * capacity : 64;
        MPI_Request *more = realloc(request, (size_t)wanted * sizeof *more);
        if (!more) return NULL;
        request = more;
        capacity = wanted;
    }
    return &request[begun];
}

static int start(int *rank, int *ranks, const char **library) {
    static char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0, level, code = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
    if (code == MPI_SUCCESS) code = MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (code == MPI_SUCCESS) code = MPI_Comm_rank(MPI_COMM_WORLD, rank);
    if (code == MPI_SUCCESS) code = MPI_Comm_size(MPI_COMM_WORLD, ranks);
    if (code == MPI_SUCCESS) code = MPI_Get_library_version(version, &length);
    version[strcspn(version, "\n,")] = '\0';
    *library = version;
    return code;
}

static int finish(void) { return MPI_Finalize(); }

static void end_all(int exit_status) { MPI_Abort(MPI_COMM_WORLD, exit_status); }

static int send(int peer, int tag, const void *bytes, size_t n) {
    const unsigned char *from = bytes;
    for (size_t at = 0; at < n; at += PIECE) {
        MPI_Request *new = next_request();
        if (!new) return MPI_ERR_NO_MEM;
        const int count = n - at < PIECE ? (int)(n - at) : PIECE;
        const int code = MPI_Isend(from + at, count, MPI_BYTE, peer, tag, MPI_COMM_WORLD, new);
        if (code != MPI_SUCCESS) return code;
        begun++;
    }
    return MPI_SUCCESS;
}

static int receive(int peer, int tag, void *bytes, size_t n) {
    unsigned char *to = bytes;
    for (size_t at = 0; at < n; at += PIECE) {
        MPI_Request *new = next_request();
        if (!new) return MPI_ERR_NO_MEM;
        const int count = n - at < PIECE ? (int)(n - at) : PIECE;
        const int code = MPI_Irecv(to + at, count, MPI_BYTE, peer, tag, MPI_COMM_WORLD, new);
        if (code != MPI_SUCCESS) return code;
        begun++;
    }
    return MPI_SUCCESS;
}

static int allreduce(float *values, size_t n) {
    MPI_Request *new = next_request();
    if (!new) return MPI_ERR_NO_MEM;
    const int code = MPI_Iallreduce(MPI_IN_PLACE, values, (int)n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, new);
    begun += code == MPI_SUCCESS;
    return code;
}

static int test(bool *done) {
    int all = 0;
    const int code = MPI_Testall(begun, request, &all, MPI_STATUSES_IGNORE);
    *done = all != 0;
    if (all) begun = 0;
    return code;
}

static int probe(int tag, int *peer, bool *waits) {
    int flag = 0;
    MPI_Status status;
    const int code = MPI_Iprobe(MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &flag, &status);
    *waits = flag != 0;
    if (flag) *peer = status.MPI_SOURCE;
    return code;
}

static const char *describe(int code) {
    static char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(code, text, &length);
    return text;
}

const ab_mpi *ab_mpi_v1(void);

const ab_mpi *ab_mpi_v1(void) {
    static const ab_mpi table = {.abi = AB_MPI_ABI,
                                 .start = start,
                                 .finish = finish,
                                 .abort = end_all,
                                 .send = send,
                                 .receive = receive,
                                 .allreduce = allreduce,
                                 .test = test,
                                 .probe = probe,
                                 .describe = describe};
    return &table;
}
