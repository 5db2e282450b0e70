// The descriptors 0, 1 and 2: that they are open, and what happens if nobody reads standard output any more.
#pragma once

namespace attnbench {

// Opens /dev/null for each of the descriptors 0, 1 and 2 that is closed. Otherwise the next file that the program opens, such as
// records.jsonl, would get that number, and everything printed would be written to the file. Writing to such a descriptor fails,
// as it would without it. Call it before anything else opens a file.
void reserve_standard_descriptors();

// Whether standard output is a pipe or a socket whose other end was closed, as that of `attnbench list | head -1` is after one
// line.
bool stdout_has_no_reader();

// Ends this process by SIGPIPE, as programs end that do not ignore it: without a word, and with the exit code 141 in a shell.
[[noreturn]] void end_without_reader();

}  // namespace attnbench
