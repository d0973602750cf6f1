"""Every option of OpenSSH's client, and what becomes of it here: none is passed over in silence.

`ssh -G` tells each option's value; those at OpenSSH's own default are not looked at. An option that is in no set
(of an OpenSSH newer than this table) is refused as well.
"""

from __future__ import annotations

FOLLOWED = {
    "host": "what was asked for",
    "hostname": "connected to",
    "port": "connected to",
    "user": "logged in as",
    "addressfamily": "of the socket",
    "bindaddress": "of the socket",
    "connecttimeout": "10 s by default",
    "connectionattempts": "3 at least, where a second one may help",
    "proxyjump": "a connection through a connection",
    "proxycommand": "our socket is the program",
    "compression": "as asked for",
    "serveraliveinterval": "15 s by default",
    "serveralivecountmax": "as asked for",
    "setenv": "sent with each program; sshd's AcceptEnv decides",
    "identityfile": "tried in this order; a certificate beside it (KEY-cert.pub) is used",
    "identitiesonly": "then no other key of the agent is shown",
    "identityagent": "asked for its keys",
    "userknownhostsfile": "says which host keys are right",
    "globalknownhostsfile": "says which host keys are right",
    "hostkeyalias": "the name looked up there",
    "hashknownhosts": "for the names that `deploy hosts trust` adds there",
    "ciphers": "those that paramiko knows",
    "macs": "those that paramiko knows",
    "kexalgorithms": "those that paramiko knows",
    "hostkeyalgorithms": "those that paramiko knows",
    "pubkeyacceptedalgorithms": "those that paramiko knows",
    "canonicaldomains": "by `ssh -G`, before it prints",
    "canonicalizefallbacklocal": "by `ssh -G`, before it prints",
    "canonicalizehostname": "by `ssh -G`, before it prints",
    "canonicalizemaxdots": "by `ssh -G`, before it prints",
    "canonicalizepermittedcnames": "by `ssh -G`, before it prints",
    "ignoreunknown": "by `ssh -G`, before it prints",
    "tag": "by `ssh -G`, before it prints",
}

HARMLESS = {
    # a host key is always checked, by our own and stricter rules
    "stricthostkeychecking": "an unknown host key is always refused",
    "checkhostip": "the key is checked under the host's name",
    "updatehostkeys": "only `deploy hosts trust` writes to known_hosts",
    "verifyhostkeydns": "only known_hosts is believed",
    "nohostauthenticationforlocalhost": "localhost's key is checked too",
    "visualhostkey": "for people at a terminal",
    "fingerprinthash": "fingerprints are SHA256",
    # only keys are tried; when they do not suffice, the error says so
    "passwordauthentication": "nobody is asked for a password",
    "kbdinteractiveauthentication": "nobody is asked for anything",
    "challengeresponseauthentication": "nobody is asked for anything",
    "numberofpasswordprompts": "nobody is asked for a password",
    "batchmode": "nobody is asked for anything",
    "hostbasedauthentication": "only keys are tried",
    "hostbasedacceptedalgorithms": "only keys are tried",
    "hostbasedkeytypes": "only keys are tried",
    "enablesshkeysign": "only keys are tried",
    "gssapiauthentication": "only keys are tried",
    "gssapikeyexchange": "only keys are tried",
    "gssapidelegatecredentials": "only keys are tried",
    "gssapitrustdns": "only keys are tried",
    "gssapirenewalforcesrekey": "only keys are tried",
    "gssapikexalgorithms": "only keys are tried",
    "gssapiclientidentity": "only keys are tried",
    "gssapiserveridentity": "only keys are tried",
    "casignaturealgorithms": "host certificates are not accepted",
    "addkeystoagent": "the agent is only asked",
    "securitykeyprovider": "keys on tokens are used through the agent",
    # for the sessions of people: a terminal, a display, forwarded ports, an own command
    "forwardagent": "no program run here logs in elsewhere with your keys",
    "forwardx11": "no display is used",
    "forwardx11timeout": "no display is used",
    "forwardx11trusted": "no display is used",
    "xauthlocation": "no display is used",
    "clearallforwardings": "no port is forwarded",
    "dynamicforward": "no port is forwarded",
    "localforward": "no port is forwarded",
    "remoteforward": "no port is forwarded",
    "permitremoteopen": "no port is forwarded",
    "gatewayports": "no port is forwarded",
    "exitonforwardfailure": "no port is forwarded",
    "streamlocalbindmask": "no port is forwarded",
    "streamlocalbindunlink": "no port is forwarded",
    "tunneldevice": "no tunnel is made",
    "requesttty": "no terminal is used",
    "escapechar": "no terminal is used",
    "enableescapecommandline": "no terminal is used",
    "obscurekeystroketiming": "no terminal is used",
    "remotecommand": "our own command is run instead",
    "localcommand": "it is for PermitLocalCommand, which is refused",
    "sendenv": "the environment here does not decide how a host acts",
    "channeltimeout": "each program has a deadline of its own",
    # the connection itself
    "controlmaster": "a connection of its own is made and kept",
    "controlpath": "a connection of its own is made and kept",
    "controlpersist": "a connection of its own is made and kept",
    "ipqos": "how routers treat the packets",
    "tcpkeepalive": "the encrypted keep-alive is used",
    "rekeylimit": "keys are renewed by paramiko's limits",
    "loglevel": "errors are told in full",
    "logverbose": "errors are told in full",
    "syslogfacility": "nothing is logged there",
    "versionaddendum": "only a comment to the server",
    "warnweakcrypto": "only a warning",
}

REFUSED = {
    "bindinterface": "use BindAddress",
    "certificatefile": "put the certificate beside its key, as KEY-cert.pub",
    "forkafterauthentication": "remove it",
    "knownhostscommand": "put the keys into a known_hosts file",
    "permitlocalcommand": "run the local command yourself",
    "pkcs11provider": "add the token's keys to an ssh-agent",
    "proxyusefdpass": "use ProxyJump",
    "pubkeyauthentication": "only keys are tried",
    "preferredauthentications": "only keys are tried: it must contain publickey",
    "refuseconnection": "it says that this host must not be connected to",
    "requiredrsasize": "use keys of another kind",
    "revokedhostkeys": "mark the keys @revoked in a known_hosts file",
    "sessiontype": "remove it",
    "smartcarddevice": "add the card's keys to an ssh-agent",
    "stdinnull": "remove it",
    "tunnel": "remove it",
}


def refusals(resolved: dict[str, list[str]], default: dict[str, list[str]]) -> list[str]:
    """One line for each option that is set and can not be followed."""
    changed = [name for name, values in resolved.items() if values != default.get(name)]
    return [
        f"{name} {' '.join(resolved[name])}: {REFUSED.get(name, 'this option is not known here')}"
        for name in changed
        if name not in FOLLOWED and name not in HARMLESS and not _suits(name, resolved[name])
    ]


def _suits(name: str, values: list[str]) -> bool:
    """Whether an option that may be refused says what is done anyway."""
    return name == "preferredauthentications" and "publickey" in values[0].split(",")
