package chaos

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ory/dockertest/v3"
	dc "github.com/ory/dockertest/v3/docker"

	"github.com/d0720281/redlock/internal/masters"
)

var libraryPath = regexp.MustCompile(`/[^ )]+`)

// Image is an image for containers.
type Image struct {
	Repository, Tag string
	Server          string // its path, or its name if the image has a PATH
}

// ImageEnv names the image to use in place of any other.
const ImageEnv = "REDLOCK_CHAOS_IMAGE"

// published are the images that are used if a registry has them.
var published = []string{"redis:8", "valkey/valkey:9"}

// FindImage finds an image: the image that [ImageEnv] names, a published image, or an image made of
// the redis-server on the PATH.
func FindImage(pool *dockertest.Pool) (Image, error) {
	names := published
	if name := os.Getenv(ImageEnv); name != "" {
		names = []string{name}
	}
	var errs []error
	for _, name := range names {
		repository, tag, _ := strings.Cut(name, ":")
		if tag == "" {
			tag = "latest"
		}
		image := Image{repository, tag, "redis-server"}
		if _, err := pool.Client.InspectImage(name); err == nil {
			return image, nil
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		err := pool.Client.PullImage(dc.PullImageOptions{Repository: repository, Tag: tag, Context: ctx}, dc.AuthConfiguration{})
		cancel()
		if err == nil {
			return image, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", name, err))
	}
	if os.Getenv(ImageEnv) != "" {
		return Image{}, errors.Join(errs...)
	}
	binary, err := masters.LookPath()
	if err != nil {
		return Image{}, errors.Join(append(errs, err)...)
	}
	repository, tag, err := EnsureImage(pool, binary)
	return Image{repository, tag, "/usr/bin/redis-server"}, err
}

// EnsureImage makes an image of a server binary of this machine and the libraries that it
// needs, unless an image of the same files exists. It asks no registry.
func EnsureImage(pool *dockertest.Pool, binary string) (repository, tag string, err error) {
	binary, err = filepath.EvalSymlinks(binary)
	if err != nil {
		return "", "", err
	}
	libraries, err := exec.Command("ldd", binary).Output()
	if err != nil {
		return "", "", fmt.Errorf("ldd %s: %w", binary, err)
	}
	content := map[string]string{"usr/bin/redis-server": binary}
	for _, l := range libraryPath.FindAllString(string(libraries), -1) {
		content[strings.TrimPrefix(l, "/")] = l
	}
	archive, sum, err := pack(content)
	if err != nil {
		return "", "", err
	}
	repository, tag = "redlock-chaos/redis", sum[:12]
	if _, err := pool.Client.InspectImage(repository + ":" + tag); err == nil {
		return repository, tag, nil
	}
	return repository, tag, pool.Client.ImportImage(dc.ImportImageOptions{
		Source: "-", Repository: repository, Tag: tag, InputStream: archive, OutputStream: io.Discard,
	})
}

// pack makes a tar of files, following links, and a hash of their names and contents.
func pack(content map[string]string) (*bytes.Buffer, string, error) {
	names := make([]string, 0, len(content))
	for name := range content {
		names = append(names, name)
	}
	slices.Sort(names)
	var archive bytes.Buffer
	w, hash := tar.NewWriter(&archive), sha256.New()
	for _, dir := range []string{"data/", "tmp/"} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o777}); err != nil {
			return nil, "", err
		}
	}
	for _, name := range names {
		file, err := os.ReadFile(content[name])
		if err != nil {
			return nil, "", err
		}
		fmt.Fprintln(hash, name, len(file))
		hash.Write(file)
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: int64(len(file))}); err != nil {
			return nil, "", err
		}
		if _, err := w.Write(file); err != nil {
			return nil, "", err
		}
	}
	return &archive, fmt.Sprintf("%x", hash.Sum(nil)), w.Close()
}
