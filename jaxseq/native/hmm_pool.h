// Threads that stay, among which parts of a corpus are shared out, for hmm.cc: to wake a thread of
// Python takes as long as a part of a product. What comes of a part does not depend on its thread.

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
    std::atomic<uint64_t> round{0};
    std::atomic<int64_t> next{0}, busy{0}, asleep{0};
    job *todo = nullptr;
    const void *what = nullptr;
    int64_t parts = 0;
    bool is_over = false;
    pid_t owner = getpid();
};

// So long a thread looks for work before it sleeps: longer than from one product to the next.
static const std::chrono::microseconds AWAKE(200);

static inline void pause_a_little() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static uint64_t next_round(pool *threads, uint64_t seen) {
    const auto until = std::chrono::steady_clock::now() + AWAKE;
    for (;;) {
        for (int i = 0; i < 32; i++) {
            if (threads->round.load() != seen) return threads->round.load();
            pause_a_little();
        }
        if (std::chrono::steady_clock::now() > until) break;
    }
    std::unique_lock<std::mutex> held(threads->lock);
    threads->asleep++; // before it looks again: who begins a round looks here after that
    threads->news.wait(held, [&] { return threads->round.load() != seen; });
    threads->asleep--;
    return threads->round.load();
}

static void take_parts(pool *threads, int64_t number) {
    for (int64_t part; (part = threads->next++) < threads->parts;)
        threads->todo(threads->what, part, number);
}

static void serve(pool *threads, int64_t number) {
    for (uint64_t seen = 0;;) {
        seen = next_round(threads, seen);
        if (threads->is_over) return;
        take_parts(threads, number);
        threads->busy--;
    }
}

static void begin_round(pool *threads) {
    threads->round++;
    if (threads->asleep.load()) {
        std::lock_guard<std::mutex> held(threads->lock);
        threads->news.notify_all();
    }
}

// All parts, on all threads; returns when the last is done. A process that was forked has none of
// its parent's threads, and works alone.
static void share_out(pool *threads, job *todo, const void *what, int64_t parts) {
    if (threads->others.empty() || parts < 2 || threads->owner != getpid()) {
        for (int64_t part = 0; part < parts; part++) todo(what, part, 0);
        return;
    }
    threads->todo = todo, threads->what = what, threads->parts = parts, threads->next = 0;
    threads->busy = (int64_t)threads->others.size();
    begin_round(threads);
    take_parts(threads, 0);
    for (int waited = 0; threads->busy.load(); waited++)
        if (waited < 10000)
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
    begin_round(threads);
    for (std::thread &other : threads->others) other.join();
    delete threads;
}
