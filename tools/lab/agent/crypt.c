/* What the lab does with encrypted block devices in a guest (encrypted.py), which has no dmsetup; compares ciphers.
 *
 *   crypt map NAME SECTORS ARGUMENTS...   a dm-crypt device of that table line, without udev; prints its number
 *   crypt unmap NAME
 *   crypt compare ONE OTHER SEED          drivers of xts(aes), by AF_ALG: keys and lengths of all kinds
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/dm-ioctl.h>
#include <linux/if_alg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define MOST_BYTES 65536

static void die(const char *what)
{
	fprintf(stderr, "crypt: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* A request to the device mapper; what comes after the structure is in `tail`. */
struct mapper_request {
	struct dm_ioctl head;
	char tail[4096];
};

static void ask_mapper(struct mapper_request *request, unsigned long number, const char *name, const char *what)
{
	static int control = -1;
	if (control < 0 && (control = open("/dev/mapper/control", O_RDWR)) < 0)
		die("/dev/mapper/control");
	request->head.version[0] = 4;
	request->head.data_size = sizeof *request;
	request->head.data_start = sizeof request->head;
	snprintf(request->head.name, sizeof request->head.name, "%s", name);
	if (ioctl(control, number, request) != 0)
		die(what);
}

static int map(const char *name, const char *sectors, char **words, int count)
{
	struct mapper_request create = { 0 }, load = { 0 }, resume = { 0 };
	ask_mapper(&create, DM_DEV_CREATE, name, "making the device");
	struct dm_target_spec *target = (struct dm_target_spec *)load.tail;
	char *line = (char *)(target + 1);
	target->length = strtoull(sectors, NULL, 10);
	strcpy(target->target_type, "crypt");
	for (int i = 0; i < count; i++) {
		if (i)
			strcat(line, " ");
		strcat(line, words[i]);
	}
	target->next = sizeof *target + strlen(line) + 1;
	load.head.target_count = 1;
	ask_mapper(&load, DM_TABLE_LOAD, name, line);
	ask_mapper(&resume, DM_DEV_SUSPEND, name, "starting the device");
	printf("/dev/dm-%u\n", minor(create.head.dev));
	return 0;
}

static int unmap(const char *name)
{
	struct mapper_request request = { 0 };
	ask_mapper(&request, DM_DEV_REMOVE, name, "removing the device");
	return 0;
}

struct cipher {
	const char *name;
	int socket, operation;
};

static void open_cipher(struct cipher *cipher, const char *name, const unsigned char *key, int bytes)
{
	struct sockaddr_alg address = { .salg_family = AF_ALG, .salg_type = "skcipher" };
	snprintf((char *)address.salg_name, sizeof address.salg_name, "%s", name);
	cipher->name = name;
	cipher->socket = socket(AF_ALG, SOCK_SEQPACKET, 0);
	if (cipher->socket < 0 || bind(cipher->socket, (struct sockaddr *)&address, sizeof address) != 0)
		die(name);
	if (setsockopt(cipher->socket, SOL_ALG, ALG_SET_KEY, key, bytes) != 0)
		die("the key");
	if ((cipher->operation = accept(cipher->socket, NULL, 0)) < 0)
		die("the operation");
}

static void close_cipher(struct cipher *cipher)
{
	close(cipher->operation);
	close(cipher->socket);
}

static void crypt_bytes(struct cipher *cipher, int operation, const unsigned char *iv, const void *from, void *to,
			size_t bytes)
{
	char control[CMSG_SPACE(4) + CMSG_SPACE(4 + 16)] = { 0 };
	struct iovec data = { (void *)from, bytes };
	struct msghdr message = {
		.msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control
	};
	struct cmsghdr *part = CMSG_FIRSTHDR(&message);
	part->cmsg_level = SOL_ALG;
	part->cmsg_type = ALG_SET_OP;
	part->cmsg_len = CMSG_LEN(4);
	memcpy(CMSG_DATA(part), &operation, 4);
	part = CMSG_NXTHDR(&message, part);
	part->cmsg_level = SOL_ALG;
	part->cmsg_type = ALG_SET_IV;
	part->cmsg_len = CMSG_LEN(4 + 16);
	struct af_alg_iv *value = (struct af_alg_iv *)CMSG_DATA(part);
	value->ivlen = 16;
	memcpy(value->iv, iv, 16);
	if (sendmsg(cipher->operation, &message, 0) != (ssize_t)bytes)
		die("giving it data");
	for (size_t got = 0; got < bytes;) {
		const ssize_t piece = read(cipher->operation, (char *)to + got, bytes - got);
		if (piece <= 0)
			die(cipher->name);
		got += piece;
	}
}

static int compare_lengths(struct cipher *one, struct cipher *other, int key_bytes)
{
	static const int near[] = { 16, 32, 48, 512, 528, 1024, 4096, 4608, 16384, 65536 - 16 };
	static unsigned char plain[MOST_BYTES], first[MOST_BYTES], second[MOST_BYTES], back[MOST_BYTES];
	for (size_t i = 0; i < sizeof near / sizeof *near; i++) {
		for (int more = 0; more < 16; more += 1 + rand() % 5) {
			const int bytes = near[i] + more;
			unsigned char iv[16];
			for (int j = 0; j < 16; j++)
				iv[j] = rand();
			for (int j = 0; j < bytes; j++)
				plain[j] = rand();
			crypt_bytes(one, ALG_OP_ENCRYPT, iv, plain, first, bytes);
			crypt_bytes(other, ALG_OP_ENCRYPT, iv, plain, second, bytes);
			crypt_bytes(one, ALG_OP_DECRYPT, iv, second, back, bytes);
			if (memcmp(first, second, bytes) != 0 || memcmp(plain, back, bytes) != 0) {
				printf("FAIL %s: a key of %d bytes, %d bytes of data\n", one->name, key_bytes, bytes);
				return 1;
			}
		}
	}
	return 0;
}

static int compare(const char *one, const char *other, const char *seed)
{
	srand(strtoul(seed, NULL, 10));
	for (int key_bytes = 32; key_bytes <= 64; key_bytes += 16) {
		unsigned char key[64];
		for (int i = 0; i < key_bytes; i++)
			key[i] = rand();
		struct cipher first, second;
		open_cipher(&first, one, key, key_bytes);
		open_cipher(&second, other, key, key_bytes);
		if (compare_lengths(&first, &second, key_bytes) != 0)
			return 1;
		close_cipher(&first);
		close_cipher(&second);
	}
	printf("same\n");
	return 0;
}

int main(int argc, char **argv)
{
	if (argc > 4 && strcmp(argv[1], "map") == 0)
		return map(argv[2], argv[3], argv + 4, argc - 4);
	if (argc == 3 && strcmp(argv[1], "unmap") == 0)
		return unmap(argv[2]);
	if (argc == 5 && strcmp(argv[1], "compare") == 0)
		return compare(argv[2], argv[3], argv[4]);
	fprintf(stderr, "crypt: map NAME SECTORS ARGUMENTS... | unmap NAME | compare ONE OTHER SEED\n");
	return 2;
}
