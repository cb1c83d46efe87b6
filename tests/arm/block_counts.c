/* A plugin of qemu's user mode: how often each block of instructions ran between two marks.
 *
 *     qemu-aarch64 -plugin libblock_counts.so,out=OUT program
 *
 * The program marks begin and end by getpriority(PRIO_PROCESS, MARK), which does nothing else. At each end OUT
 * gets a line for each block that ran: its address, how often, and its instructions, all hexadecimal.
 * For one thread: counters are not atomic.
 *
 * The declarations are those of qemu's plugin API, version 1 (docs/devel/tcg-plugins.rst of qemu 7.2), whose
 * header Debian does not package.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t qemu_plugin_id_t;
struct qemu_info;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum { QEMU_PLUGIN_INLINE_ADD_U64 };
typedef void (*translated_fn)(qemu_plugin_id_t, struct qemu_plugin_tb *);
typedef void (*syscall_fn)(qemu_plugin_id_t, unsigned, int64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                           uint64_t, uint64_t, uint64_t, uint64_t);
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, translated_fn);
void qemu_plugin_register_vcpu_syscall_cb(qemu_plugin_id_t, syscall_fn);
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *, int, void *, uint64_t);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);

enum { GETPRIORITY = 141, MARK = 0x45444745 }; /* aarch64's number of the call */

struct block {
    struct block *next;
    uint64_t address, runs, count;
    uint32_t code[];
};
static struct block *blocks;
static FILE *out;
static bool counting;

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
    size_t count = qemu_plugin_tb_n_insns(tb);
    struct block *block = calloc(1, sizeof *block + count * sizeof *block->code);
    if (block == NULL)
        abort();
    block->address = qemu_plugin_tb_vaddr(tb);
    block->count = count;
    for (size_t i = 0; i < count; i++)
        memcpy(&block->code[i], qemu_plugin_insn_data(qemu_plugin_tb_get_insn(tb, i)), 4);
    block->next = blocks;
    blocks = block;
    qemu_plugin_register_vcpu_tb_exec_inline(tb, QEMU_PLUGIN_INLINE_ADD_U64, &block->runs, 1);
}

static void called(qemu_plugin_id_t id, unsigned cpu, int64_t number, uint64_t which, uint64_t who, uint64_t a3,
                   uint64_t a4, uint64_t a5, uint64_t a6, uint64_t a7, uint64_t a8)
{
    if (number != GETPRIORITY || (uint32_t)who != MARK)
        return;
    if (counting) {
        for (struct block *b = blocks; b != NULL; b = b->next)
            if (b->runs) {
                fprintf(out, "%lx %lx ", b->address, b->runs);
                for (uint64_t i = 0; i < b->count; i++)
                    fprintf(out, "%08x", b->code[i]);
                fputc('\n', out);
            }
        fputs("\n", out);
        fflush(out);
    }
    counting = !counting;
    for (struct block *b = blocks; b != NULL; b = b->next)
        b->runs = 0;
}

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

__attribute__((visibility("default"))) int qemu_plugin_install(qemu_plugin_id_t id, const struct qemu_info *info,
                                                               int argc, char **argv)
{
    if (argc != 1 || strncmp(argv[0], "out=", 4) != 0 || (out = fopen(argv[0] + 4, "w")) == NULL) {
        fputs("block_counts: needs out=OUT, a file that can be written\n", stderr);
        return 1;
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_vcpu_syscall_cb(id, called);
    return 0;
}
