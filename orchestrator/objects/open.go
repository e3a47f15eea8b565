package objects

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

const awsEndpoint = "https://s3.amazonaws.com"

var bucketPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)

// Open opens a store named by a path, by file:///path, or by s3://bucket/prefix?endpoint=http://host:port&region=name.
// The default endpoint is AWS. Credentials come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, from MINIO_ROOT_USER
// and MINIO_ROOT_PASSWORD, from ~/.aws/credentials, or from the instance's role. A missing directory or bucket is
// created. An unreachable server is not an error: the store is unavailable until it answers, and its bucket is checked
// then.
func Open(ctx context.Context, store string) (Store, error) {
	if store == "" {
		return nil, errors.New("object store: no path or URL given")
	}
	scheme, _, isURL := strings.Cut(store, "://")
	if !isURL {
		return openDir(store)
	}
	u, err := url.Parse(store)
	if err != nil {
		return nil, fmt.Errorf("object store: not a URL: %w", withoutURL(err))
	}
	switch scheme {
	case "file":
		if u.Host != "" || u.Path == "" {
			return nil, fmt.Errorf("object store %s: host %q: want file:/// and an absolute path", u.Redacted(), u.Host)
		}
		return openDir(u.Path)
	case "s3":
		return openS3(ctx, u)
	}
	return nil, fmt.Errorf("object store %s: scheme %q: want a path, file:///path or s3://bucket/prefix",
		u.Redacted(), scheme)
}

// openDir keeps a nil *Dir out of the interface.
func openDir(path string) (Store, error) {
	d, err := OpenDir(path)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// withoutURL removes the URL from an error, because it may contain a secret.
func withoutURL(err error) error {
	var parse *url.Error
	if errors.As(err, &parse) {
		return parse.Err
	}
	return err
}

// location has the parts of an s3 URL.
type location struct {
	bucket, prefix, region string
	endpoint               *url.URL
}

func parseS3(u *url.URL) (location, error) {
	at := location{bucket: u.Host, region: u.Query().Get("region")}
	if u.User != nil {
		return at, errors.New("user: keep credentials out of the URL; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
	}
	if !bucketPattern.MatchString(at.bucket) {
		return at, fmt.Errorf("bucket %q: want 3 to 63 lower-case letters, digits, '-' or '.'", at.bucket)
	}
	if prefix := strings.Trim(u.Path, "/"); prefix != "" {
		if err := CheckKey(prefix); err != nil {
			return at, fmt.Errorf("prefix: %w", err)
		}
		at.prefix = prefix + "/"
	}
	for _, name := range sortedKeys(u.Query()) {
		if name != "endpoint" && name != "region" {
			return at, fmt.Errorf("parameter %q: want endpoint or region", name)
		}
	}
	text := u.Query().Get("endpoint")
	if text == "" {
		text = awsEndpoint
	}
	endpoint, err := url.Parse(text)
	if err != nil || endpoint.Host == "" || (endpoint.Scheme != "http" && endpoint.Scheme != "https") ||
		strings.Trim(endpoint.Path, "/") != "" || endpoint.RawQuery != "" || endpoint.User != nil {
		return at, fmt.Errorf("endpoint %q: want http://host:port or https://host:port", text)
	}
	at.endpoint = endpoint
	return at, nil
}

func sortedKeys(q url.Values) []string {
	names := make([]string, 0, len(q))
	for name := range q {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func openS3(ctx context.Context, u *url.URL) (Store, error) {
	at, err := parseS3(u)
	if err != nil {
		return nil, fmt.Errorf("object store %s: %w", u.Redacted(), err)
	}
	creds, err := findCredentials(at)
	if err != nil {
		return nil, fmt.Errorf("object store %s: %w", u.Redacted(), err)
	}
	client, err := minio.New(at.endpoint.Host, &minio.Options{
		Creds: creds, Secure: at.endpoint.Scheme == "https", Region: at.region, MaxRetries: retries,
	})
	if err != nil {
		return nil, fmt.Errorf("object store %s: endpoint %q: %w", u.Redacted(), at.endpoint, err)
	}
	s := &S3{
		core: minio.Core{Client: client}, bucket: at.bucket, prefix: at.prefix, name: u.Redacted(), region: at.region,
		endpoint: at.endpoint.String(),
	}
	short, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	err = s.ensureBucket(short)
	away := errors.Is(err, ErrUnavailable) || short.Err() != nil // it answers with an error or not at all
	if err != nil && (ctx.Err() != nil || !away) {
		return nil, fmt.Errorf("object store %w", err)
	}
	return s, nil
}

// openTimeout is how long Open waits for a server.
const openTimeout = 5 * time.Second

// ensureBucket creates the bucket if it is missing, once, because the server may have been unreachable when the store was
// opened.
func (s *S3) ensureBucket(ctx context.Context) error {
	if s.reached.Load() {
		return nil
	}
	if err := s.makeBucket(ctx, s.region); err != nil {
		return fmt.Errorf("%s: bucket %q at endpoint %s: %w", s, s.bucket, s.endpoint, err)
	}
	s.reached.Store(true)
	return nil
}

// metadataEnv names the instance's metadata service, as in AWS's tools.
const metadataEnv = "AWS_EC2_METADATA_SERVICE_ENDPOINT"

// findCredentials looks in the environment and in the user's AWS file. It asks for the instance's role only with AWS
// itself, or if the environment names a service; elsewhere the request would hang.
func findCredentials(at location) (*credentials.Credentials, error) {
	providers := []credentials.Provider{
		&credentials.EnvAWS{}, &credentials.EnvMinio{}, &credentials.FileAWSCredentials{},
	}
	if at.endpoint.String() == awsEndpoint || strings.HasSuffix(at.endpoint.Hostname(), ".amazonaws.com") || hasCredentialsService() {
		providers = append(providers, &credentials.IAM{Region: os.Getenv("AWS_REGION"), Endpoint: os.Getenv(metadataEnv)})
	}
	creds := credentials.NewChainCredentials(providers)
	value, err := creds.GetWithContext(nil)
	if err == nil && value.AccessKeyID == "" {
		err = errors.New("none found")
	}
	if err != nil {
		return nil, fmt.Errorf("credentials: %w; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or MINIO_ROOT_USER "+
			"and MINIO_ROOT_PASSWORD, or write ~/.aws/credentials", err)
	}
	return creds, nil
}

// hasCredentialsService reports whether the environment names a service that provides the credentials of an instance, a task or
// a pod.
func hasCredentialsService() bool {
	return slices.ContainsFunc([]string{
		metadataEnv, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_WEB_IDENTITY_TOKEN_FILE",
	}, func(name string) bool { return os.Getenv(name) != "" })
}

// makeBucket creates the bucket if it is missing. Credentials that may not check for the bucket may still be allowed to
// use it, so the first use decides.
func (s *S3) makeBucket(ctx context.Context, region string) error {
	exists, err := s.core.BucketExists(ctx, s.bucket)
	if minio.ToErrorResponse(err).Code == "AccessDenied" {
		return nil
	}
	if err != nil || exists {
		return s.classify(err)
	}
	err = s.core.MakeBucket(ctx, s.bucket, minio.MakeBucketOptions{Region: region})
	switch minio.ToErrorResponse(err).Code {
	case "BucketAlreadyOwnedByYou", "BucketAlreadyExists": // another process was faster
		return nil
	}
	return s.classify(err)
}
