// The exit codes of `attnbench`: each code means the same for every command.
#pragma once

namespace attnbench::exit_code {

// The command did what it was asked for. Cases that were skipped for a recorded reason do not change that, and for `gate` it
// means that no case is slower.
inline constexpr int success = 0;
// A measured case failed, a method does not verify, or a build is slower than the one it is compared with. Records and reports
// are written as usual and name what failed.
inline constexpr int failure = 1;
// The command line, an input file or the environment is wrong: an unknown option, a file that cannot be read or written, a
// worker that does not start, a revision that does not exist or does not build. Standard error says what was expected.
inline constexpr int usage = 2;
// `gate`: the measurements are too noisy to tell whether a case is slower.
inline constexpr int inconclusive = 3;
// `gate`: the builds cannot be compared, because one does not verify, cannot run a case, or breaks while it measures one.
inline constexpr int unusable = 4;

// SIGINT (130) or SIGTERM (143) ended the command. What was recorded before stays.
constexpr int interrupted(int signal) { return 128 + signal; }

}  // namespace attnbench::exit_code
