package cli

import (
	"fmt"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// nodeView is a node.
type nodeView struct {
	Name        string                         `json:"name" doc:"name of the node"`
	State       string                         `json:"state" doc:"up, draining, lost or left"`
	Reason      string                         `json:"reason" doc:"why it is in that state"`
	Hostname    string                         `json:"hostname" doc:"name of the machine"`
	Version     string                         `json:"version" doc:"version of its worker"`
	Trusted     bool                           `json:"trusted" doc:"whether its worker has joined this server and signs its messages"`
	LastSeen    *time.Time                     `json:"last_seen" doc:"time in UTC"`
	CPUs        number                         `json:"cpus" doc:"CPU cores"`
	MemoryBytes int64                          `json:"memory_bytes" doc:"memory"`
	Labels      map[string]string              `json:"labels" doc:"labels of the worker"`
	Devices     []deviceView                   `json:"devices" doc:"devices: index, type, name, memory_bytes, uuid, pci, numa, speed, trial (which holds it, or null)"`
	Links       messages[*outbidv1.DeviceLink] `json:"links" doc:"fast links between devices: a, b, kind, lanes"`
	Faults      []faultView                    `json:"faults" doc:"why it gets no new trials: word (unfit, drained, cordoned, backing off, open again), sweep (null for all), reason, since, until, times, trials, actor (who cordoned or drained it, or \"\")"`
	Warnings    []string                       `json:"warnings" doc:"problems that its worker found but that do not prevent trials"`
}

type deviceView struct {
	Index       int32   `json:"index"`
	Type        string  `json:"type"`
	Name        string  `json:"name"`
	MemoryBytes int64   `json:"memory_bytes"`
	UUID        string  `json:"uuid"`
	PCI         string  `json:"pci"`
	NUMA        int32   `json:"numa"`
	Speed       number  `json:"speed"`
	Trial       *string `json:"trial"`
}

func viewNode(n *outbidv1.Node) nodeView {
	info := n.GetInfo()
	v := nodeView{
		Name: info.GetName(), State: lowerEnum(n.GetState().String(), "NODE_STATE_"), Reason: n.GetReason(),
		Hostname: info.GetHostname(), Version: info.GetVersion(), Trusted: info.GetTrusted(),
		LastSeen: viewTime(n.GetLastSeen()), CPUs: number(info.GetCpus()), MemoryBytes: info.GetMemoryBytes(),
		Labels: info.GetLabels(), Devices: []deviceView{}, Links: info.GetLinks(), Faults: viewFaults(n.GetFaults(), time.Now()),
		Warnings: append([]string{}, info.GetWarnings()...),
	}
	if v.Labels == nil {
		v.Labels = map[string]string{}
	}
	holders := map[int32]*outbidv1.ForkRef{}
	for _, u := range n.GetUses() {
		holders[u.GetDevice()] = u.GetFork()
	}
	for _, d := range info.GetDevices() {
		dv := deviceView{
			Index: d.GetIndex(), Type: d.GetType(), Name: d.GetName(), MemoryBytes: d.GetMemoryBytes(), UUID: d.GetUuid(),
			PCI: d.GetPci(), NUMA: d.GetNuma(), Speed: number(d.GetSpeed()),
		}
		if f := holders[d.GetIndex()]; f != nil {
			dv.Trial = new("another tenant's")
			if f.GetSweep() != "" {
				dv.Trial = new(fmt.Sprintf("%s/%d", f.GetSweep(), f.GetTrial()))
			}
		}
		v.Devices = append(v.Devices, dv)
	}
	return v
}
