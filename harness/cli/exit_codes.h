// The exit codes of `attnbench`. Each code means the same for every command.
#pragma once

namespace attnbench::exit_code {

inline constexpr int success = 0;
inline constexpr int failure = 1;
inline constexpr int usage = 2;
inline constexpr int inconclusive = 3;
inline constexpr int unusable = 4;
inline constexpr int stale = 5;
// SIGINT (130), SIGTERM (143) or SIGPIPE (141: nobody reads what the command prints) ended the command. Records that were written
// before stay.
constexpr int interrupted(int signal) { return 128 + signal; }

struct Meaning {
  int code;
  const char* text;
};
// What the codes mean, as `attnbench --help` prints it.
inline constexpr Meaning meanings[] = {
    {success, "the command did what it was asked for; cases may have been skipped for a recorded reason"},
    {failure,
     "a case failed, a shard is missing, a method does not verify, a worker broke, a build is slower, or a case has a verdict "
     "that compare --fail-on names"},
    {usage, "the command line, an input file or the environment is wrong; standard error says what was expected"},
    {inconclusive, "gate: the measurements are too noisy or, with --quick, too few to tell whether a case is slower"},
    {unusable, "gate: a build does not verify, cannot run a case, or breaks while it measures one"},
    {stale, "the folder holds results of another build, machine or configuration, and cannot be continued"},
};

}  // namespace attnbench::exit_code
