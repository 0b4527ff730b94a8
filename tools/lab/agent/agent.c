/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest's agent: puts files into the guest, runs programs, and returns their output over a virtio-serial port.
 *
 * Frames in both directions: one byte type, four bytes length (little endian), payload.
 *   host  -> guest  'P' open a file for writing: octal mode, NUL, path    'D' data for it    'E' close it
 *                   'X' run: environment strings, an empty string, argument strings, each ended by NUL
 *                   'I' standard input of the running program (length 0: end)    'K' signal number to it
 *   guest -> host   'H' hello    'A' done    'N' error text
 *                   'O' standard output    'R' standard error    'Q' wait status (four bytes)
 * One program runs at a time. Static, so that it needs nothing of the guest's root.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	kMaxFrame = 1 << 20,
	kChunk = 64 * 1024,
	kMaxStrings = 512
};

static int port = -1;
static char frame[kMaxFrame];

static void write_all(int fd, const void *data, size_t size)
{
	const char *at = data;

	while (size > 0) {
		ssize_t n = write(fd, at, size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return;
		at += n;
		size -= (size_t)n;
	}
}

static void send_frame(char type, const void *data, uint32_t size)
{
	char header[5] = { type, (char)size, (char)(size >> 8), (char)(size >> 16), (char)(size >> 24) };

	write_all(port, header, sizeof(header));
	write_all(port, data, size);
}

static void send_error(const char *what)
{
	char text[512];
	int n = snprintf(text, sizeof(text), "%s: %s", what, strerror(errno));

	send_frame('N', text, (uint32_t)n);
}

/* Reads exactly size bytes; the port reads 0 while the host is away, so wait for it. */
static void read_all(void *data, size_t size)
{
	char *at = data;

	while (size > 0) {
		ssize_t n = read(port, at, size);

		if (n <= 0) {
			usleep(20000);
			continue;
		}
		at += n;
		size -= (size_t)n;
	}
}

static char read_frame(uint32_t *size)
{
	unsigned char header[5];

	read_all(header, sizeof(header));
	*size = header[1] | header[2] << 8 | header[3] << 16 | (uint32_t)header[4] << 24;
	if (*size >= kMaxFrame) {
		errno = EMSGSIZE;
		send_error("frame");
		exit(1);
	}
	read_all(frame, *size);
	frame[*size] = 0;
	return (char)header[0];
}

static void make_folders(char *path)
{
	for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = 0;
		mkdir(path, 0755);
		*slash = '/';
	}
}

static void put_file(uint32_t size)
{
	char *path = frame + strlen(frame) + 1;
	mode_t mode = (mode_t)strtoul(frame, NULL, 8);
	int failed = 0;
	int fd;

	if (path >= frame + size) {
		errno = EINVAL;
		send_error("put");
		return;
	}
	make_folders(path);
	unlink(path);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
	if (fd < 0)
		failed = errno;
	for (;;) {
		char type = read_frame(&size);

		if (type == 'E')
			break;
		if (type != 'D' || failed)
			continue;
		if (write(fd, frame, size) != (ssize_t)size)
			failed = errno ? errno : EIO;
	}
	if (fd >= 0) {
		fchmod(fd, mode);
		close(fd);
	}
	errno = failed;
	if (failed)
		send_error("put");
	else
		send_frame('A', NULL, 0);
}

static pid_t start(char **environment, char **arguments, int in[2], int out[2], int err[2])
{
	pid_t child = fork();

	if (child != 0)
		return child;
	setsid();
	dup2(in[0], 0);
	dup2(out[1], 1);
	dup2(err[1], 2);
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	execvpe(arguments[0], arguments, environment);
	dprintf(2, "%s: %s\n", arguments[0], strerror(errno));
	_exit(127);
}

/* Splits NUL-ended strings; the empty one separates environment and arguments. */
static int split(uint32_t size, char **environment, char **arguments)
{
	char **list = environment;
	int count = 0;

	for (char *at = frame; at < frame + size; at += strlen(at) + 1) {
		if (list == environment && *at == 0) {
			list[count] = NULL;
			list = arguments;
			count = 0;
			continue;
		}
		if (count == kMaxStrings)
			return -1;
		list[count++] = at;
	}
	list[count] = NULL;
	return list == arguments && count > 0 ? 0 : -1;
}

/* Forwards what a pipe holds; returns 0 at its end. */
static int forward(int fd, char type)
{
	static char data[kChunk];
	ssize_t n = read(fd, data, sizeof(data));

	if (n > 0)
		send_frame(type, data, (uint32_t)n);
	return n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN));
}

static void handle_input(pid_t child, int *input)
{
	uint32_t size;
	char type = read_frame(&size);

	if (type == 'K' && size == 4) {
		int32_t signal_number;

		memcpy(&signal_number, frame, sizeof(signal_number));
		kill(-child, signal_number);
	} else if (type == 'I' && *input >= 0) {
		if (size > 0) {
			write_all(*input, frame, size);
		} else {
			close(*input);
			*input = -1;
		}
	}
}

static void supervise(pid_t child, int input, int out, int err)
{
	int status = 0;
	int exited = 0;

	while (!exited || out >= 0 || err >= 0) {
		struct pollfd fds[3] = { { exited ? -1 : port, POLLIN, 0 }, { out, POLLIN, 0 }, { err, POLLIN, 0 } };
		/* After the program's end its pipes may be held open by what it left behind: do not wait for that. */
		int ready = poll(fds, 3, exited ? 200 : 20);

		if (fds[1].revents && !forward(out, 'O'))
			out = -1;
		if (fds[2].revents && !forward(err, 'R'))
			err = -1;
		if (ready > 0 && (fds[0].revents & POLLIN))
			handle_input(child, &input);
		if (!exited && waitpid(child, &status, WNOHANG) == child)
			exited = 1;
		else if (exited && ready == 0)
			break;
	}
	if (input >= 0)
		close(input);
	send_frame('Q', &status, sizeof(status));
}

static void run_program(uint32_t size)
{
	static char *environment[kMaxStrings + 1], *arguments[kMaxStrings + 1];
	int in[2], out[2], err[2];
	pid_t child;

	if (split(size, environment, arguments) != 0) {
		errno = E2BIG;
		send_error("run");
		return;
	}
	if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC)) {
		send_error("pipe");
		return;
	}
	child = start(environment, arguments, in, out, err);
	close(in[0]);
	close(out[1]);
	close(err[1]);
	if (child < 0)
		send_error("fork");
	else
		supervise(child, in[1], out[0], err[0]);
	close(out[0]);
	close(err[0]);
}

int main(int argc, char **argv)
{
	uint32_t size;

	signal(SIGPIPE, SIG_IGN);
	port = open(argc > 1 ? argv[1] : "/dev/virtio-ports/org.bandsaw.agent", O_RDWR | O_CLOEXEC);
	if (port < 0) {
		perror("agent: port");
		return 1;
	}
	send_frame('H', NULL, 0);
	for (;;) {
		char type = read_frame(&size);

		if (type == 'P')
			put_file(size);
		else if (type == 'X')
			run_program(size);
		else if (type == 'H')
			send_frame('H', NULL, 0);
	}
}
