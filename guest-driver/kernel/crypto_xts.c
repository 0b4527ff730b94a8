// SPDX-License-Identifier: GPL-2.0-only
/*
 * xts(aes) for the crypto API, which takes it before others because of its priority. Requests that are small, and all
 * of them while there is no virtual GPU, are passed on to the implementation that the API would else have taken.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <crypto/internal/skcipher.h>
#include <crypto/xts.h>
#include <linux/device.h>
#include <linux/module.h>

#include "crypto.h"

#define FIRMWARE "bandsaw/aes_xts.ptx"
#define PRIORITY 900 /* above the processor's with AVX-512 */

static unsigned int least_bytes = 4096;
module_param(least_bytes, uint, 0644);
MODULE_PARM_DESC(least_bytes, "requests of fewer bytes are left to the processor");

static atomic64_t cpu_bytes;
static struct device *device; /* for people: its attributes */
static const struct firmware *code;

static void prepare_fallback(struct xts_request *one, u32 flags, crypto_completion_t complete, void *data)
{
	const struct xts_tfm *tfm = crypto_skcipher_ctx(crypto_skcipher_reqtfm(one->request));
	struct skcipher_request *request = one->request;

	atomic64_add(request->cryptlen, &cpu_bytes);
	skcipher_request_set_tfm(&one->fallback, tfm->fallback);
	skcipher_request_set_callback(&one->fallback, flags, complete, data);
	skcipher_request_set_crypt(&one->fallback, request->src, request->dst, request->cryptlen, request->iv);
}

static int start_fallback(struct xts_request *one)
{
	return one->decrypt ? crypto_skcipher_decrypt(&one->fallback) : crypto_skcipher_encrypt(&one->fallback);
}

int xts_on_cpu(struct xts_request *one)
{
	DECLARE_CRYPTO_WAIT(wait);

	prepare_fallback(one, CRYPTO_TFM_REQ_MAY_SLEEP | CRYPTO_TFM_REQ_MAY_BACKLOG, crypto_req_done, &wait);
	return crypto_wait_req(start_fallback(one), &wait);
}

static int crypt(struct skcipher_request *request, bool decrypt)
{
	struct xts_request *one = skcipher_request_ctx(request);

	if (request->cryptlen < XTS_BLOCK_SIZE)
		return -EINVAL;
	one->request = request;
	one->decrypt = decrypt;
	if (request->cryptlen >= READ_ONCE(least_bytes) && request->cryptlen <= VGPU_XTS_DATA_BYTES &&
	    xts_queue_add(one))
		return -EINPROGRESS;
	prepare_fallback(one, request->base.flags, request->base.complete, request->base.data);
	return start_fallback(one);
}

static int encrypt(struct skcipher_request *request)
{
	return crypt(request, false);
}

static int decrypt(struct skcipher_request *request)
{
	return crypt(request, true);
}

static int set_key(struct crypto_skcipher *cipher, const u8 *key, unsigned int bytes)
{
	struct xts_tfm *tfm = crypto_skcipher_ctx(cipher);
	int error = xts_verify_key(cipher, key, bytes);

	if (error)
		return error;
	error = aes_expandkey(&tfm->data, key, bytes / 2);
	if (!error)
		error = aes_expandkey(&tfm->tweak, key + bytes / 2, bytes / 2);
	if (error)
		return error;
	crypto_skcipher_clear_flags(tfm->fallback, CRYPTO_TFM_REQ_MASK);
	crypto_skcipher_set_flags(tfm->fallback, crypto_skcipher_get_flags(cipher) & CRYPTO_TFM_REQ_MASK);
	return crypto_skcipher_setkey(tfm->fallback, key, bytes);
}

static int init(struct crypto_skcipher *cipher)
{
	struct xts_tfm *tfm = crypto_skcipher_ctx(cipher);

	tfm->fallback = crypto_alloc_skcipher("xts(aes)", 0, CRYPTO_ALG_NEED_FALLBACK | CRYPTO_ALG_ALLOCATES_MEMORY);
	if (IS_ERR(tfm->fallback))
		return PTR_ERR(tfm->fallback);
	crypto_skcipher_set_reqsize(cipher, sizeof(struct xts_request) + crypto_skcipher_reqsize(tfm->fallback));
	return 0;
}

static void leave(struct crypto_skcipher *cipher)
{
	struct xts_tfm *tfm = crypto_skcipher_ctx(cipher);

	crypto_free_skcipher(tfm->fallback);
}

static struct skcipher_alg algorithm = {
	.base = {
		.cra_name = "xts(aes)",
		.cra_driver_name = "xts-aes-vgpu",
		.cra_priority = PRIORITY,
		.cra_flags = CRYPTO_ALG_ASYNC | CRYPTO_ALG_NEED_FALLBACK,
		.cra_blocksize = AES_BLOCK_SIZE,
		.cra_ctxsize = sizeof(struct xts_tfm),
		.cra_module = THIS_MODULE,
	},
	.min_keysize = 2 * AES_MIN_KEY_SIZE,
	.max_keysize = 2 * AES_MAX_KEY_SIZE,
	.ivsize = XTS_BLOCK_SIZE,
	.setkey = set_key,
	.encrypt = encrypt,
	.decrypt = decrypt,
	.init = init,
	.exit = leave,
};

static ssize_t gpu_bytes_show(struct device *unused, struct device_attribute *attribute, char *text)
{
	return sysfs_emit(text, "%llu\n", xts_queue_gpu_bytes());
}
static DEVICE_ATTR_RO(gpu_bytes);

static ssize_t cpu_bytes_show(struct device *unused, struct device_attribute *attribute, char *text)
{
	return sysfs_emit(text, "%llu\n", (u64)atomic64_read(&cpu_bytes));
}
static DEVICE_ATTR_RO(cpu_bytes);

static ssize_t ready_show(struct device *unused, struct device_attribute *attribute, char *text)
{
	return sysfs_emit(text, "%d\n", xts_queue_ready());
}
static DEVICE_ATTR_RO(ready);

static struct attribute *attributes[] = {
	&dev_attr_gpu_bytes.attr,
	&dev_attr_cpu_bytes.attr,
	&dev_attr_ready.attr,
	NULL,
};
static const struct attribute_group attribute_group = { .attrs = attributes };

static int start(void)
{
	int error = request_firmware(&code, FIRMWARE, device);

	if (error)
		return error;
	error = xts_queue_start(code);
	if (error)
		goto no_queue;
	error = sysfs_create_group(&device->kobj, &attribute_group);
	if (error)
		goto no_group;
	error = crypto_register_skcipher(&algorithm);
	if (!error)
		return 0;
	sysfs_remove_group(&device->kobj, &attribute_group);
no_group:
	xts_queue_stop();
no_queue:
	release_firmware(code);
	return error;
}

static int __init vgpu_crypto_init(void)
{
	int error;

	device = root_device_register(KBUILD_MODNAME);
	if (IS_ERR(device))
		return PTR_ERR(device);
	error = start();
	if (error)
		root_device_unregister(device);
	return error;
}
module_init(vgpu_crypto_init);

static void __exit vgpu_crypto_exit(void)
{
	crypto_unregister_skcipher(&algorithm);
	sysfs_remove_group(&device->kobj, &attribute_group);
	xts_queue_stop();
	release_firmware(code);
	root_device_unregister(device);
}
module_exit(vgpu_crypto_exit);

MODULE_DESCRIPTION("AES-XTS on a Bandsaw virtual GPU");
MODULE_LICENSE("GPL");
MODULE_ALIAS_CRYPTO("xts-aes-vgpu");
MODULE_FIRMWARE(FIRMWARE);
