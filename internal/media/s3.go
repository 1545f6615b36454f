package media

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/caddy-modelgate/modelgate/backends"
)

// S3Options are the settings of a bucket.
type S3Options struct {
	// Endpoint is the URL of the service, such as
	// https://s3.eu-central-1.amazonaws.com. Without a scheme it is https.
	Endpoint string

	// Bucket is the name of an existing bucket.
	Bucket string

	// Region is the region of the bucket. Default: us-east-1.
	Region string

	// AccessKey and SecretKey must allow reading, writing, listing and deleting
	// objects below Prefix, and listing and aborting multipart uploads there.
	AccessKey, SecretKey string

	// Prefix is a folder that begins the names of all objects. Default: none.
	Prefix string

	// PathStyle puts the name of the bucket into the path instead of the host.
	// Self-hosted services often need it.
	PathStyle bool
}

// bucket is a [Place] in Amazon S3 or a compatible service. Each file is an object
// <prefix>/<name>. A draft is a multipart upload, whose parts are durable.
type bucket struct {
	core   minio.Core
	name   string
	prefix string // ends in a slash, or is empty
}

const (
	// partSize is the smallest part that S3 allows except for the last one
	// (Amazon S3 User Guide, "Amazon S3 multipart upload limits"). A copy holds
	// one part in memory.
	partSize = 5 << 20

	// s3Attempts is how many times a request is sent after network errors.
	s3Attempts = 3

	// s3Timeout is the maximum time until an answer begins.
	s3Timeout = time.Minute

	defaultRegion = "us-east-1"
)

// S3 returns the place in a bucket, or an error for the operator if the options
// are invalid. It sends no request.
func S3(o S3Options) (Place, error) {
	host, secure, err := endpoint(o.Endpoint)
	if err != nil {
		return nil, err
	}
	for _, option := range []struct{ name, value string }{
		{"bucket", o.Bucket}, {"access_key", o.AccessKey}, {"secret_key", o.SecretKey},
	} {
		if option.value == "" {
			return nil, fmt.Errorf("media.s3.%s is missing", option.name)
		}
	}
	if strings.ContainsAny(o.Bucket, "/\\ ") {
		return nil, fmt.Errorf("media.s3.bucket: %q is not the name of a bucket", o.Bucket)
	}
	prefix := strings.Trim(o.Prefix, "/")
	if slices.ContainsFunc(strings.Split(prefix, "/"), func(s string) bool { return s == "." || s == ".." }) {
		return nil, fmt.Errorf("media.s3.prefix: %q is not supported; allowed: a path without . and .. segments", o.Prefix)
	}
	if prefix != "" {
		prefix += "/"
	}
	lookup := minio.BucketLookupAuto
	if o.PathStyle {
		lookup = minio.BucketLookupPath
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = s3Timeout
	transport.DisableCompression = true
	transport.MaxIdleConnsPerHost = maxCopies
	core, err := minio.NewCore(host, &minio.Options{
		Creds:        credentials.NewStaticV4(o.AccessKey, o.SecretKey, ""),
		Secure:       secure,
		Transport:    transport,
		Region:       cmp.Or(o.Region, defaultRegion),
		BucketLookup: lookup,
		MaxRetries:   s3Attempts,
	})
	if err != nil {
		return nil, fmt.Errorf("media.s3.endpoint: %w", err)
	}
	return &bucket{core: *core, name: o.Bucket, prefix: prefix}, nil
}

// endpoint parses https://host:port, or host:port.
func endpoint(text string) (host string, secure bool, err error) {
	if text == "" {
		return "", false, errors.New("media.s3.endpoint is missing; example: https://s3.eu-central-1.amazonaws.com")
	}
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return "", false, errors.New("media.s3.endpoint is not valid; allowed: an http or https URL without a path, such as https://s3.eu-central-1.amazonaws.com")
	}
	return u.Host, u.Scheme == "https", nil
}

func (b *bucket) String() string {
	return "the bucket " + b.name + " at " + b.core.EndpointURL().Host + " below /" + b.prefix
}

// Prepare does nothing, so that the gateway starts even if the service is down.
func (*bucket) Prepare() error { return nil }

// CheckSpace returns nil: a bucket has no limit.
func (*bucket) CheckSpace(int64) error { return nil }

func (b *bucket) object(name string) string { return b.prefix + name }

func (b *bucket) Size(ctx context.Context, name string) (int64, error) {
	info, err := b.core.StatObject(ctx, b.name, b.object(name), minio.StatObjectOptions{})
	return info.Size, b.failure(err)
}

func (b *bucket) Open(ctx context.Context, name string) (io.ReadSeekCloser, error) {
	size, err := b.Size(ctx, name)
	if err != nil {
		return nil, err
	}
	return &object{ctx: ctx, bucket: b, name: name, size: size}, nil
}

func (b *bucket) Remove(ctx context.Context, name string) error {
	err := b.core.RemoveObject(ctx, b.name, b.object(name), minio.RemoveObjectOptions{})
	if err := b.failure(err); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	uploads, err := b.uploads(ctx, name)
	if err != nil {
		return err
	}
	for _, upload := range uploads {
		err := b.core.AbortMultipartUpload(ctx, b.name, b.object(name), upload)
		if err := b.failure(err); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// uploads returns the multipart uploads of a name. A crash can leave several.
func (b *bucket) uploads(ctx context.Context, name string) (ids []string, err error) {
	object := b.object(name)
	list, err := b.core.ListMultipartUploads(ctx, b.name, object, "", "", "", 100)
	if err != nil {
		return nil, b.failure(err)
	}
	for _, upload := range list.Uploads {
		if upload.Key == object {
			ids = append(ids, upload.UploadID)
		}
	}
	return ids, nil
}

// List returns the objects, and then the drafts.
func (b *bucket) List(ctx context.Context, after string, limit int) (list []Entry, next string, err error) {
	ctx, cancel := context.WithCancel(ctx) // ends the listing
	defer cancel()
	options := minio.ListObjectsOptions{Prefix: b.prefix, Recursive: true, MaxKeys: limit}
	if after != "" {
		options.StartAfter = b.object(after)
	}
	seen := 0
	for info := range b.core.ListObjectsIter(ctx, b.name, options) {
		if info.Err != nil {
			return nil, "", b.failure(info.Err)
		}
		name := strings.TrimPrefix(info.Key, b.prefix)
		if IsName(name) {
			list = append(list, Entry{Name: name, Modified: info.LastModified})
		}
		if seen++; seen == limit { // foreign objects count too: there may be no others
			return list, name, nil
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, "", err
	}
	drafts, err := b.drafts(ctx)
	return append(list, drafts...), "", err
}

// drafts returns the multipart uploads in progress.
func (b *bucket) drafts(ctx context.Context) (list []Entry, err error) {
	uploads, err := b.core.ListMultipartUploads(ctx, b.name, b.prefix, "", "", "", 1000)
	for _, upload := range uploads.Uploads {
		if name := strings.TrimPrefix(upload.Key, b.prefix); IsName(name) {
			list = append(list, Entry{Name: name, Modified: upload.Initiated})
		}
	}
	return list, b.failure(err)
}

// failure converts an error of the service. The result contains neither the
// credential nor the object's name, which grants access.
func (b *bucket) failure(err error) error {
	if err == nil {
		return nil
	}
	if answer, ok := errors.AsType[minio.ErrorResponse](err); ok {
		if answer.Code == minio.NoSuchKey || answer.Code == minio.NoSuchUpload {
			return fs.ErrNotExist
		}
		return &connectionError{text: fmt.Sprintf("%s answers %d %s", b.core.EndpointURL().Host, answer.StatusCode, backends.Text(answer.Code)), cause: err}
	}
	return sanitize(err)
}
