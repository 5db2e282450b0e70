// Turns SIGINT and SIGTERM into an exception, which code that waits for a child process throws.
#pragma once

namespace attnbench {

// After this call SIGINT and SIGTERM no longer end this program, but make throw_if_interrupted() throw. Writing to a pipe that
// has no reader, or beyond the limit of a file's size (ulimit -f), fails instead of raising SIGPIPE or SIGXFSZ.
void catch_interrupts();

// Throws Interrupted if SIGINT or SIGTERM has arrived since catch_interrupts().
void throw_if_interrupted();

}  // namespace attnbench
