// Threads that stay, among which parts of a corpus are shared out, for hmm.cc: to wake a thread of
// Python takes as long as a part of a product. What comes of a part does not depend on its thread,
// and nobody waits for a thread that has taken none: where others are at work on the machine, those
// that run take what there is.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <vector>

// What to do with a part, on which of the threads; the caller's is number 0.
typedef void job(const void *what, int64_t part, int64_t thread);

struct pool {
    std::vector<std::thread> others;
    std::mutex lock;
    std::condition_variable news;
    // The parts that nobody has taken yet, and above MANY the number of the round: a thread that
    // has looked, and takes a part only later, takes none of another round.
    std::atomic<uint64_t> left{0};
    std::atomic<int64_t> done{0}, asleep{0};
    std::atomic<bool> is_over{false};
    // Of the round; who has taken a part may look at them, as the round does not end before.
    job *todo = nullptr;
    const void *what = nullptr;
    pid_t owner = getpid();
};

enum { MANY = 1 << 16 };

// So long a thread looks for work before it sleeps: longer than from one product to the next.
static const std::chrono::microseconds AWAKE(200);

static inline void pause_a_little() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void take_parts(pool *threads, int64_t number) {
    for (uint64_t seen = threads->left.load(); seen % MANY;) {
        if (!threads->left.compare_exchange_weak(seen, seen - 1)) continue;
        threads->todo(threads->what, (int64_t)(seen % MANY) - 1, number);
        threads->done++;
        seen = threads->left.load();
    }
}

static bool has_work(const pool *threads) {
    return threads->left.load() % MANY || threads->is_over.load();
}

static void await_work(pool *threads) {
    const auto until = std::chrono::steady_clock::now() + AWAKE;
    do {
        for (int i = 0; i < 32; i++) {
            if (has_work(threads)) return;
            pause_a_little();
        }
    } while (std::chrono::steady_clock::now() < until);
    std::unique_lock<std::mutex> held(threads->lock);
    threads->asleep++; // before it looks again: who has work to give looks here after that
    threads->news.wait(held, [&] { return has_work(threads); });
    threads->asleep--;
}

static void serve(pool *threads, int64_t number) {
    while (!threads->is_over.load()) {
        await_work(threads);
        take_parts(threads, number);
    }
}

static void wake(pool *threads) {
    if (!threads->asleep.load()) return;
    std::lock_guard<std::mutex> held(threads->lock);
    threads->news.notify_all();
}

// All parts, fewer than MANY, on all threads; returns when the last is done. A process that was
// forked has none of its parent's threads, and works alone.
static void share_out(pool *threads, job *todo, const void *what, int64_t parts) {
    if (threads->others.empty() || parts < 2 || threads->owner != getpid()) {
        for (int64_t part = 0; part < parts; part++) todo(what, part, 0);
        return;
    }
    threads->todo = todo, threads->what = what, threads->done = 0;
    threads->left = (threads->left.load() / MANY + 1) * MANY + (uint64_t)parts;
    wake(threads);
    take_parts(threads, 0);
    for (int waited = 0; threads->done.load() < parts; waited++)
        if (waited < 1000)
            pause_a_little();
        else
            std::this_thread::yield();
}

// So many threads, the caller's among them, or as many as there can be.
extern "C" pool *hmm_pool_begin(int64_t number) {
    pool *threads = new pool;
    try {
        for (int64_t i = 1; i < number; i++) threads->others.emplace_back(serve, threads, i);
    } catch (const std::system_error &) {
    }
    return threads;
}

extern "C" void hmm_pool_end(pool *threads) {
    if (threads->owner != getpid()) return; // its threads cannot be waited for here
    threads->is_over = true;
    wake(threads);
    for (std::thread &other : threads->others) other.join();
    delete threads;
}
