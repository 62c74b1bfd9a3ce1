package main

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// etcdStartTimeout bounds the opening of the data and the election of the one
// member, which take well below a second.
const etcdStartTimeout = 30 * time.Second

// startEtcd opens the data in the state folder and serves it. The caller must
// Close it.
func startEtcd(s *state) (*embed.Etcd, error) {
	client := loopbackURL(s.Ports.EtcdClient)
	peer := loopbackURL(s.Ports.EtcdPeer)

	cfg := embed.NewConfig()
	cfg.Dir = s.path("etcd")
	cfg.LogLevel = "warn"
	cfg.LogOutputs = []string{s.path("etcd.log")}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.UnsafeNoFsync = true // the data need not outlive a crash of the machine
	cfg.QuotaBackendBytes = 8 << 30
	cfg.WarningUnaryRequestDuration = time.Second // its zero value logs every request
	// A leader of one need not wait a second for votes.
	cfg.TickMs, cfg.ElectionMs = 10, 100

	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, fmt.Errorf("start etcd: %w (log: %s)", err, s.path("etcd.log"))
	}
	select {
	case <-e.Server.ReadyNotify():
		return e, nil
	case err := <-e.Err():
		e.Close()
		return nil, fmt.Errorf("start etcd: %w (log: %s)", err, s.path("etcd.log"))
	case <-time.After(etcdStartTimeout):
		e.Close()
		return nil, errors.New("start etcd: not ready after " + etcdStartTimeout.String() + ", log: " + s.path("etcd.log"))
	}
}

func loopbackURL(port int) url.URL {
	return url.URL{Scheme: "http", Host: "127.0.0.1:" + strconv.Itoa(port)}
}
