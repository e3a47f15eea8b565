/* Shortens a tour through 400 towns by simulated annealing: a program in C as a trial of Outbid.
 *
 *   anneal START_TEMPERATURE COOLING MOVE
 *
 * START_TEMPERATURE is in units of the towns' mean distance, COOLING the factor per step, MOVE "swap", "reverse" or
 * "insert". One step is a fixed number of tried moves. What else it must know comes from the environment:
 *
 *   OUTBID_START_STEP, OUTBID_UNTIL_STEP   which steps to do
 *   OUTBID_CHECKPOINT_IN                   where it left off; empty for a fresh start
 *   OUTBID_CHECKPOINT_OUT                  where to write its checkpoint
 *   OUTBID_REPORT                          a file that takes one line of JSON per step
 *   OUTBID_SEED                            seed of a fresh start
 *
 * SIGTERM asks it to save and end. Without Outbid around it, it runs 27 steps and reports to standard output. */
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOWNS = 400, MOVES_PER_STEP = 400000 };

static double town_x[TOWNS], town_y[TOWNS];
static volatile sig_atomic_t told_to_end;

/* What a checkpoint holds: everything that the next move depends on. */
struct search {
    int64_t step;
    uint64_t random;
    double temperature;
    int32_t tour[TOWNS];
};

static void on_term(int sig) {
    (void)sig;
    told_to_end = 1;
}

/* xorshift64*: small, and its whole state fits a checkpoint. */
static uint64_t next_random(uint64_t *state) {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 2685821657736338717ULL;
}

static int below(uint64_t *state, int n) { return (int)(next_random(state) % (uint64_t)n); }

static double uniform(uint64_t *state) { return (double)(next_random(state) >> 11) / 9007199254740992.0; }

static double distance(int a, int b) { return hypot(town_x[a] - town_x[b], town_y[a] - town_y[b]); }

static int wrap(int i) { return i < 0 ? i + TOWNS : i % TOWNS; }

static double edge(const int32_t *tour, int i) { return distance(tour[wrap(i)], tour[wrap(i + 1)]); }

static double tour_length(const int32_t *tour) {
    double sum = 0;
    for (int i = 0; i < TOWNS; i++) sum += edge(tour, i);
    return sum;
}

static void place_towns(void) {
    uint64_t random = 20260101; /* the same map for every trial */
    for (int i = 0; i < TOWNS; i++) {
        town_x[i] = uniform(&random);
        town_y[i] = uniform(&random);
    }
}

/* Each move returns by how much it would lengthen the tour, and makes the change if make is set. i < j. */

static double swap_towns(int32_t *tour, int i, int j, int make) {
    double before = edge(tour, i - 1) + edge(tour, i) + edge(tour, j - 1) + edge(tour, j);
    int32_t t = tour[i];
    tour[i] = tour[j];
    tour[j] = t;
    double after = edge(tour, i - 1) + edge(tour, i) + edge(tour, j - 1) + edge(tour, j);
    if (!make) {
        tour[j] = tour[i];
        tour[i] = t;
    }
    return after - before;
}

static double reverse_part(int32_t *tour, int i, int j, int make) {
    double before = edge(tour, i - 1) + edge(tour, j);
    double after = distance(tour[wrap(i - 1)], tour[j]) + distance(tour[i], tour[wrap(j + 1)]);
    if (i == 0 && j == TOWNS - 1) after = before; /* the whole round trip backwards is the same tour */
    if (make) {
        for (; i < j; i++, j--) {
            int32_t t = tour[i];
            tour[i] = tour[j];
            tour[j] = t;
        }
    }
    return after - before;
}

static double insert_town(int32_t *tour, int i, int j, int make) {
    /* Takes town i out and puts it behind town j. */
    if (i == 0 && j == TOWNS - 1) return 0;
    double before = edge(tour, i - 1) + edge(tour, i) + edge(tour, j);
    double after = distance(tour[wrap(i - 1)], tour[wrap(i + 1)]) + distance(tour[j], tour[i]) +
                   distance(tour[i], tour[wrap(j + 1)]);
    if (make) {
        int32_t t = tour[i];
        memmove(tour + i, tour + i + 1, (size_t)(j - i) * sizeof *tour);
        tour[j] = t;
    }
    return after - before;
}

typedef double (*move_fn)(int32_t *, int, int, int);

static void anneal_step(struct search *s, double cooling, move_fn move) {
    for (int n = 0; n < MOVES_PER_STEP; n++) {
        int i = below(&s->random, TOWNS), j = below(&s->random, TOWNS);
        if (i == j) continue;
        if (i > j) {
            int t = i;
            i = j;
            j = t;
        }
        double worse = move(s->tour, i, j, 0);
        if (worse <= 0 || uniform(&s->random) < exp(-worse / s->temperature)) move(s->tour, i, j, 1);
    }
    s->temperature *= cooling;
    s->step++;
}

static const char *env(const char *name) {
    const char *value = getenv(name);
    return value ? value : "";
}

static void fail(const char *what, const char *which) {
    fprintf(stderr, "anneal: %s: %s\n", what, which);
    exit(2);
}

static void load(struct search *s, const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f || fread(s, sizeof *s, 1, f) != 1) fail("cannot read the checkpoint", path);
    fclose(f);
}

/* Written beside and renamed, so that a checkpoint is there whole or not at all. */
static void save(const struct search *s, const char *path) {
    char part[4096];
    if (snprintf(part, sizeof part, "%s.part", path) >= (int)sizeof part) fail("path is too long", path);
    FILE *f = fopen(part, "wb");
    if (!f || fwrite(s, sizeof *s, 1, f) != 1 || fclose(f) != 0 || rename(part, path) != 0)
        fail("cannot write the checkpoint", path);
}

static void report(const struct search *s) {
    const char *path = env("OUTBID_REPORT");
    FILE *f = *path ? fopen(path, "a") : stdout;
    if (!f) fail("cannot append to the report", path);
    fprintf(f, "{\"step\": %lld, \"length\": %.6f, \"temperature\": %.6g}\n", (long long)s->step,
            tour_length(s->tour), s->temperature);
    if (*path ? fclose(f) != 0 : fflush(f) != 0) fail("cannot append to the report", path);
}

int main(int argc, char **argv) {
    if (argc != 4) fail("usage", "anneal START_TEMPERATURE COOLING swap|reverse|insert");
    double start = atof(argv[1]), cooling = atof(argv[2]);
    if (!(start > 0)) fail("START_TEMPERATURE must be above 0", argv[1]);
    if (!(cooling > 0 && cooling <= 1)) fail("COOLING must be above 0 and at most 1", argv[2]);
    move_fn move = !strcmp(argv[3], "swap")      ? swap_towns
                   : !strcmp(argv[3], "reverse") ? reverse_part
                   : !strcmp(argv[3], "insert")  ? insert_town
                                                 : NULL;
    if (!move) fail("MOVE must be swap, reverse or insert", argv[3]);
    signal(SIGTERM, on_term);
    place_towns();

    struct search s = {.random = strtoull(env("OUTBID_SEED"), NULL, 10) * 2 + 1, .temperature = start * 0.52};
    for (int i = 0; i < TOWNS; i++) s.tour[i] = i;
    if (*env("OUTBID_CHECKPOINT_IN")) load(&s, env("OUTBID_CHECKPOINT_IN"));
    int64_t until = *env("OUTBID_UNTIL_STEP") ? atoll(env("OUTBID_UNTIL_STEP")) : 27;
    while (s.step < until && !told_to_end) {
        anneal_step(&s, cooling, move);
        report(&s);
        if (*env("OUTBID_CHECKPOINT_OUT")) save(&s, env("OUTBID_CHECKPOINT_OUT"));
    }
    return 0;
}
