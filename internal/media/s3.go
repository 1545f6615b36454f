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

// S3Options say where a bucket is and how it is entered.
type S3Options struct {
	// Endpoint is the address of the service: https://s3.eu-central-1.amazonaws.com.
	// Without a scheme it is https.
	Endpoint string

	// Bucket is the name of a bucket that is there already.
	Bucket string

	// Region is where it is. Default: us-east-1.
	Region string

	// AccessKey and SecretKey may read, write, list and delete objects below the
	// prefix, and list and abort multipart uploads there.
	AccessKey, SecretKey string

	// Prefix begins the names of all objects, as a folder. Default: none.
	Prefix string

	// PathStyle names the bucket in the path rather than the host, as services of
	// one's own often want it.
	PathStyle bool
}

// bucket is a [Place] of Amazon's S3 or of a service that speaks like it: an
// object <prefix>/<name> for each file. A draft is a multipart upload, of which
// every part is durable by itself.
type bucket struct {
	core   minio.Core
	name   string
	prefix string // ends in a slash, or is empty
}

const (
	// partSize is the least that S3 takes for a part that is not the last
	// (Amazon S3 User Guide, "Amazon S3 multipart upload limits"). It is what a copy
	// has in memory.
	partSize = 5 << 20

	// s3Tries is how often a request is sent that failed on its way.
	s3Tries = 3

	// s3Patience is how long an answer may take to begin.
	s3Patience = time.Minute

	defaultRegion = "us-east-1"
)

// S3 returns the place in a bucket, or what is wrong with the options, in the
// words of an operator. It asks nobody.
func S3(o S3Options) (Place, error) {
	host, secure, err := endpoint(o.Endpoint)
	if err != nil {
		return nil, err
	}
	for _, word := range []struct{ name, value string }{
		{"bucket", o.Bucket}, {"access_key", o.AccessKey}, {"secret_key", o.SecretKey},
	} {
		if word.value == "" {
			return nil, fmt.Errorf("media.s3.%s is missing", word.name)
		}
	}
	if strings.ContainsAny(o.Bucket, "/\\ ") {
		return nil, fmt.Errorf("media.s3.bucket is the name of a bucket, not %q", o.Bucket)
	}
	prefix := strings.Trim(o.Prefix, "/")
	if slices.ContainsFunc(strings.Split(prefix, "/"), func(s string) bool { return s == "." || s == ".." }) {
		return nil, fmt.Errorf("media.s3.prefix is a folder without dots for a name, not %q", o.Prefix)
	}
	if prefix != "" {
		prefix += "/"
	}
	lookup := minio.BucketLookupAuto
	if o.PathStyle {
		lookup = minio.BucketLookupPath
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = s3Patience
	transport.DisableCompression = true
	transport.MaxIdleConnsPerHost = mostCopies
	core, err := minio.NewCore(host, &minio.Options{
		Creds:        credentials.NewStaticV4(o.AccessKey, o.SecretKey, ""),
		Secure:       secure,
		Transport:    transport,
		Region:       cmp.Or(o.Region, defaultRegion),
		BucketLookup: lookup,
		MaxRetries:   s3Tries,
	})
	if err != nil {
		return nil, fmt.Errorf("media.s3.endpoint: %w", err)
	}
	return &bucket{core: *core, name: o.Bucket, prefix: prefix}, nil
}

// endpoint reads https://host:port, or one without a scheme.
func endpoint(text string) (host string, secure bool, err error) {
	if text == "" {
		return "", false, errors.New("media.s3.endpoint is missing: https://s3.eu-central-1.amazonaws.com")
	}
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return "", false, errors.New("media.s3.endpoint is an http or https address of a host, without a path: https://s3.eu-central-1.amazonaws.com")
	}
	return u.Host, u.Scheme == "https", nil
}

func (b *bucket) String() string {
	return "the bucket " + b.name + " at " + b.core.EndpointURL().Host + " below /" + b.prefix
}

// Prepare does nothing: a service that is down is no reason not to start.
func (*bucket) Prepare() error { return nil }

// Room is always there.
func (*bucket) Room(int64) error { return nil }

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

// uploads returns the multipart uploads of a name. There may be several where a
// process ended at the wrong moment.
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

// List returns the objects, and at the end the drafts.
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
		if seen++; seen == limit { // others' objects count too: they may be all there is
			return list, name, nil
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, "", err
	}
	drafts, err := b.drafts(ctx)
	return append(list, drafts...), "", err
}

// drafts returns the multipart uploads that are under way.
func (b *bucket) drafts(ctx context.Context) (list []Entry, err error) {
	uploads, err := b.core.ListMultipartUploads(ctx, b.name, b.prefix, "", "", "", 1000)
	for _, upload := range uploads.Uploads {
		if name := strings.TrimPrefix(upload.Key, b.prefix); IsName(name) {
			list = append(list, Entry{Name: name, Modified: upload.Initiated})
		}
	}
	return list, b.failure(err)
}

// failure is an error of the service in the words of this package. It names
// neither the credential nor the object, whose name is a way in.
func (b *bucket) failure(err error) error {
	if err == nil {
		return nil
	}
	if answer, is := errors.AsType[minio.ErrorResponse](err); is {
		if answer.Code == minio.NoSuchKey || answer.Code == minio.NoSuchUpload {
			return fs.ErrNotExist
		}
		return &connectionError{text: fmt.Sprintf("%s answers %d %s", b.core.EndpointURL().Host, answer.StatusCode, backends.Text(answer.Code)), cause: err}
	}
	return plain(err)
}
